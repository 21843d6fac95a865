"""The decode step of a dense model as an operator file. In the config: `operators: [tools/decoding/decode_step.py]`,
`decode_step: {models: [llama-3-8b], batch_sizes: [1], contexts: [1024]}`."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

import config_file
import numpy
from architecture import Model
from chain import CACHE_TENSORS, GPU_CONSTANTS, Chain
from dense import DenseModel, read_dense
from number_formats import PLAIN_FORMATS, NumberFormat
from operations import ModelOperation, step_operations
from pydantic import AfterValidator, Field

import roofline.api as api
from reference import normalise, random_cache, random_weights, run_layer, run_step, select_layer, to_float64
from roofline.api import attention_kernel as attention
from roofline.api import product_kernel as products

LARGEST_CONTEXT = 10**7  # tokens: no model has more
MOST_CACHED = 1 << 15  # tokens of all sequences that a check attends to; of more, every n-th sequence is compared
MOST_COMPARED = 1 << 25  # weights of the head that a check multiplies in float64; of more, every n-th row
CACHE_SEED_OFFSET = 10_000  # above the seeds of weights
# With keys and values in FP8. A number of the newest token between two of FP8 may be rounded to the other one: in the
# reference alone, a rounding of its inputs to bf16 moved a layer of 60 seeds by up to 1.9e-2, without FP8 by 0.4e-2.
FP8_TOLERANCES = {"fp16": 1e-2, "bf16": 2e-2}
Batch = Annotated[api.Whole, Field(le=products.MOST_ROWS)]
Context = Annotated[api.Whole, Field(le=LARGEST_CONTEXT)]  # the new token included


def _require_dense(model: str) -> str:
    read_dense(config_file.find_model(model))  # raises ValueErrors
    return model


class DecodeStepSettings(api.OperatorSettings):
    """One decode step of each model, at every batch size and context."""

    # Paths of Hugging Face config.json files, or shipped names.
    models: Annotated[list[Annotated[str, AfterValidator(_require_dense)]], api.EachOnce] = Field(default=[])
    batch_sizes: Annotated[list[Batch], Field(min_length=1), api.EachOnce] = Field(default=[1, 32])
    contexts: Annotated[list[Context], Field(min_length=1), api.EachOnce] = Field(default=[1024])
    kv_dtype: Literal["fp8_e4m3"] | None = None  # of keys and values; null: that of the model
    time_budget_s: Annotated[api.Budget, api.ByEffort(0.1, 0.3, 2)] = None


class DecodeStep(api.Operator):
    """The decode step of dense models with random weights and caches."""

    name, title = "decode_step", "a model's decode step"
    counted = "weights without the embedding table, and K/V, once"
    Settings, unit, implementations = DecodeStepSettings, "tensor_core", (Chain,)
    constants: ClassVar = {"gpu": GPU_CONSTANTS}

    def jobs(self, config: Any) -> list[api.Job]:
        settings, jobs = getattr(config, self.rule), []
        sizes = [(batch, context) for context in settings.contexts for batch in settings.batch_sizes]
        for entry in map(config_file.find_model, settings.models):
            cases = tuple(make_case(entry, batch, context, settings.kv_dtype) for batch, context in sizes)
            jobs.append(api.Job(job_path(entry, settings.kv_dtype), cases))
        return jobs

    # -- counts

    def _counted_model(self, case: api.Case) -> Model:
        """Return the model, as much of it as one card holds."""
        return config_file.read_model(case.params["config"])

    def _free_bytes(self, device: api.Device) -> int:
        return device.identity.memory_free_bytes

    def _step_operations(self, case: api.Case) -> list[ModelOperation]:
        model = self._counted_model(case)
        return step_operations(model, case.shape["batch"], case.shape["context"], cache_format(case))

    def flops(self, case: api.Case, scope: str | None = None) -> int:
        return round(sum(operation.count * operation.flops for operation in self._step_operations(case)))

    def bytes(self, case: api.Case, scope: str | None = None) -> int:
        return round(sum(operation.count * operation.bytes for operation in self._step_operations(case)))

    def smallest(self, case: api.Case) -> None:
        return None

    def memory_needed(self, case: api.Case, last_level_cache_bytes: int) -> int:
        """Return 0, which ends no run before it begins: `unsupported` skips a case that does not fit."""
        return 0

    def unsupported(self, device: api.Device, case: api.Case) -> str | None:
        """Return why a case does not fit the memory, with the number of layers that would; None if it fits."""
        model, free_bytes = self._counted_model(case), self._free_bytes(device)
        cache_bytes = case.shape["batch"] * model.cache_bytes(case.shape["context"], cache_format(case))
        needed_bytes = model.weight_bytes + cache_bytes + api.LIBRARY_WORKSPACE_BYTES
        if needed_bytes <= free_bytes:
            return None
        weights = [array for layer in model.layers for array in (*layer.linears, *layer.vectors)]
        layers_bytes = sum(array.bytes for array in weights) + cache_bytes
        layers = len(model.layers)
        fitting_layers = max(0, layers + (free_bytes - needed_bytes) * layers // layers_bytes)
        sizes = ", ".join(f"{name} {size}" for name, size in case.shape.items())
        needs = f"{api.capacity(needed_bytes)} needed at {sizes}, and {api.capacity(free_bytes)} free"
        return f"it does not fit: {needs}; {fitting_layers} of its {layers} layers would"

    # -- inputs and check

    def inputs(self, device: api.Device, case: api.Case, seed: int) -> dict:
        model = DenseModel(**case.params["model"])
        tokens = numpy.random.default_rng(seed).integers(0, model.vocabulary, case.shape["batch"], numpy.int32)
        cache = random_cache(device, model, case, seed + CACHE_SEED_OFFSET)
        weights = random_weights(device, model, case.dtype, seed)
        return {**weights, **cache, "tokens": device.to_device(tokens)}

    def reference(self, case: api.Case, inputs: dict) -> api.Array:
        """Return the logits, from float64 arrays."""
        return run_step(DenseModel(**case.params["model"]), inputs)

    def check(self, implementation: api.Implementation, scope: str | None) -> tuple[api.Check, float]:
        """Check the first layer, then run the step and check its head. Returns the check and the step's seconds.

        The first layer is checked for as many sequences as the host has memory for, and the head is applied to the
        result of the last layer.
        """
        errors, compared = self._check_layers(implementation)
        seconds = implementation.device.time_steps(implementation.step(scope), 1)[0]
        head_check = self.compare(implementation, scope, 0, implementation.logits)
        error = max(head_check.relative_error, *errors)
        return head_check.model_copy(update={"compared": compared, "relative_error": error}), seconds

    def _check_layers(self, chain: api.Implementation) -> tuple[list[float], str]:
        """Return the errors of layers that were checked, and what they and the head are compared with, in words."""
        compared = "the first layer, and the head on the last one's result, against float64"
        return [self._check_first_layer(chain)], compared

    def _check_first_layer(self, chain: Chain) -> float:
        """Run the embedding and the first layer, and return their relative error. Raises ArithmeticError."""
        device, weights = chain.device, chain.weights
        for launch in chain.make_launches()[: 1 + chain.kernels_per_layer]:
            launch()
        stride = -(-chain.batch * chain.context // MOST_CACHED)
        arrays = select_layer(weights, 0)
        arrays |= {name: arrays[name][::stride] for name in CACHE_TENSORS if name in arrays}
        arrays = to_float64(device, arrays)
        stream = _to_float64(device, weights["embedding"][weights["tokens"][::stride]])
        expected = run_layer(chain.model, arrays, stream)
        return self._require_close(chain, "the first layer", _to_float64(device, chain.stream[::stride]), expected)

    def compare(
        self, implementation: api.Implementation, scope: str | None, index: int, result: api.Array
    ) -> api.Check:
        """Compare the logits with float64: all must be finite, and of a large head every n-th is compared."""
        chain, device, model = implementation, implementation.device, implementation.model
        stride = -(-model.vocabulary * model.hidden // MOST_COMPARED) | 1  # odd
        logits = device.to_host(result).astype(numpy.float32)
        stream, norm = _to_float64(device, chain.stream), _to_float64(device, chain.weights["last_norm"])
        expected = normalise(stream, norm, model.eps) @ _to_float64(device, chain.weights["head"][::stride]).T
        compared = logits[:, ::stride]
        if not numpy.isfinite(logits).all():  # maybe of those that are not compared
            compared = compared + numpy.nan
        error = self._require_close(chain, "the head", compared, expected)
        tolerance = self.tolerance_of(chain.case)
        return api.Check(compared="the head, against float64", relative_error=error, tolerance=tolerance)

    def tolerance_of(self, case: api.Case) -> float:
        """Return the largest relative error that is allowed."""
        return (FP8_TOLERANCES if case.params["kv_dtype"] == attention.FP8 else self.tolerance)[case.dtype]

    def _require_close(self, chain: Chain, result_name: str, result: numpy.ndarray, expected: numpy.ndarray) -> float:
        """Return the relative error. Raises ArithmeticError if it is above the tolerance."""
        error = api.relative_error(result, expected)
        api.require_close(f"{self.name}, {chain.case}: {result_name}", error, self.tolerance_of(chain.case))
        return error


def make_case(entry: Mapping[str, Any], batch: int, context: int, kv_dtype: str | None = None) -> api.Case:
    """Return the case of an entry from `config_file.find_model`, with keys and values of a dtype, by default that of
    the model. Raises NotDense."""
    params = {"model": asdict(read_dense(entry)), "config": entry, "kv_dtype": kv_dtype or dtype_of(entry)}
    name = f"{entry['name']}, FP8 K/V" if kv_dtype else entry["name"]
    return api.Case({"batch": batch, "context": context}, dtype_of(entry), name, params)


def cache_format(case: api.Case) -> NumberFormat:
    """Return the format of a case's keys and values."""
    kv_dtype = case.params["kv_dtype"]
    return PLAIN_FORMATS["fp8" if kv_dtype == attention.FP8 else kv_dtype]


def dtype_of(entry: Mapping[str, Any]) -> str:
    """Return the dtype of a dense model's weights, K/V and products."""
    return config_file.read_model(entry).head.format.name


def job_path(entry: Mapping[str, Any], kv_dtype: str | None = None) -> str:
    """Return the path of a model's record below results/DEVICE/decode_step/, without .json."""
    path = f"{config_file.file_name(entry['name'])}_{dtype_of(entry)}"
    return f"{path}_kv_{kv_dtype}" if kv_dtype else path


def _to_float64(device: api.Device, array: api.Array) -> numpy.ndarray:
    return device.to_host(array).astype("float64")
