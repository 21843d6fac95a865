"""The decode step of a dense model as an operator file. In the config: `operators: [tools/decoding/decode_step.py]`,
`decode_step: {models: [llama-3-8b], batch_sizes: [1], contexts: [1024]}`."""

from dataclasses import asdict
from typing import Annotated, ClassVar

import config_file
from chain import GPU, Chain
from dense import Dense, dense
from number_formats import PLAIN
from operations import operations
from pydantic import AfterValidator

from reference import draw, draw_cache, layer, normalised, step
from roofline.api import (
    LIBRARY_WORKSPACE_BYTES,
    Budget,
    ByEffort,
    Case,
    Check,
    EachOnce,
    Field,
    Implementation,
    Job,
    Operator,
    OperatorSettings,
    Whole,
    capacity,
    product_kernel,
    relative_error,
    require_close,
)

MOST_CONTEXT = 10**7  # tokens: no model has more
MOST_CACHED = 1 << 15  # tokens of all sequences that a check attends to; of more, every n-th sequence is compared
MOST_COMPARED = 1 << 25  # weights of the head that a check multiplies in float64; of more, every n-th row
Batch = Annotated[Whole, Field(le=product_kernel.MOST_ROWS)]
Context = Annotated[Whole, Field(le=MOST_CONTEXT)]


def _dense(named: str) -> str:
    dense(config_file.find(named))  # raises ValueErrors
    return named


class DecodeStepSettings(OperatorSettings):
    """One decode step of each model, at every batch size and context."""

    # Paths of Hugging Face config.json files, or shipped names.
    models: Annotated[list[Annotated[str, AfterValidator(_dense)]], EachOnce] = Field(default=[])
    batch_sizes: Annotated[list[Batch], Field(min_length=1), EachOnce] = Field(default=[1, 32])
    contexts: Annotated[list[Context], Field(min_length=1), EachOnce] = Field(default=[1024])  # the new token included
    time_budget_s: Annotated[Budget, ByEffort(0.1, 0.3, 2)] = None


class DecodeStep(Operator):
    name, title = "decode_step", "a model's decode step"
    counted = "weights without the embedding table, and K/V, once"
    Settings, unit, implementations = DecodeStepSettings, "tensor_core", (Chain,)
    tolerance: ClassVar = {"fp16": 2e-3, "bf16": 1e-2}
    constants: ClassVar = {"gpu": GPU}

    def jobs(self, config) -> list[Job]:
        settings = config.decode_step
        sizes = [(batch, context) for context in settings.contexts for batch in settings.batch_sizes]
        models = map(config_file.find, settings.models)
        return [Job(job_path(found), tuple(case_of(found, *size) for size in sizes)) for found in models]

    # -- counts

    def _operations(self, case: Case):
        model = config_file.read(case.params["config"])
        return operations(model, **case.shape, cache=PLAIN[case.dtype])

    def flops(self, case: Case, scope: str | None = None) -> int:
        return round(sum(one.times * one.flops for one in self._operations(case)))

    def bytes(self, case: Case, scope: str | None = None) -> int:
        return round(sum(one.times * one.bytes for one in self._operations(case)))

    def smallest(self, case: Case) -> None:
        return None

    def memory_needed(self, case: Case, last_level_cache_bytes: int) -> int:
        """Nothing that would end a run before it begins: `unsupported` skips a case that does not fit."""
        return 0

    def unsupported(self, device, case: Case) -> str | None:
        """A case that does not fit the memory, with the number of layers that would."""
        model, free = config_file.read(case.params["config"]), device.identity.memory_free_bytes
        cache = case.shape["batch"] * model.cache_bytes(case.shape["context"], PLAIN[case.dtype])
        needed = model.weight_bytes + cache + LIBRARY_WORKSPACE_BYTES
        if needed <= free:
            return None
        matrices = sum(one.bytes for layer in model.layers for one in (*layer.linears, *layer.vectors))
        left, count = free - (needed - matrices - cache), len(model.layers)
        fit = max(0, int(left * count // (matrices + cache)))
        at = ", ".join(f"{name} {size}" for name, size in case.shape.items())
        needs = f"{capacity(needed)} needed at {at}, and {capacity(free)} free"
        return f"it does not fit: {needs}; {fit} of its {count} layers would"

    # -- inputs and check

    def inputs(self, device, case: Case, seed: int) -> dict:
        import numpy

        model, sizes = Dense(**case.params["model"]), case.shape
        tokens = numpy.random.default_rng(seed).integers(0, model.vocabulary, sizes["batch"], numpy.int32)
        cache = draw_cache(device, model, case.dtype, sizes["batch"], sizes["context"], seed + 10_000)
        return {**draw(device, model, case.dtype, seed), **cache, "tokens": device.to_device(tokens)}

    def reference(self, case: Case, inputs: dict):
        """The logits, from float64 arrays."""
        return step(Dense(**case.params["model"]), inputs, inputs)

    def check(self, implementation: Implementation, scope: str | None) -> tuple[Check, float]:
        """The first layer for as many sequences as the host has memory for; then the step, and its head applied to the
        result of the last layer."""
        layer_error = self._layer_error(implementation)
        seconds = implementation.device.time_steps(implementation.step(scope), 1)[0]
        check = self.compare(implementation, scope, 0, implementation.logits)
        compared = "the first layer, and the head on the last one's result, against float64"
        return check.model_copy(
            update={"compared": compared, "relative_error": max(check.relative_error, layer_error)}
        ), seconds

    def _layer_error(self, chain: Chain) -> float:
        device, weights = chain.device, chain.weights
        for launch in chain.launches()[: 1 + chain.kernels_a_layer]:
            launch()
        few = slice(None, None, -(-chain.batch * chain.context // MOST_CACHED))
        of = {name.partition(".")[2]: array for name, array in weights.items() if name.startswith("0.")}
        of |= {name: of[name][few] for name in ("keys", "values")}
        of = {name: _float64(device, array) for name, array in of.items()}
        x = _float64(device, weights["embedding"][weights["tokens"][few]])
        expected = layer(chain.model, of, x, of["keys"], of["values"])
        return self._close(chain, "the first layer", _float64(device, chain.stream[few]), expected)

    def compare(self, implementation: Implementation, scope: str | None, index: int, result) -> Check:
        """Every logit must be finite; of a large head every n-th is compared."""
        import numpy

        chain, device, model = implementation, implementation.device, implementation.model
        every = -(-model.vocabulary * model.hidden // MOST_COMPARED) | 1
        got = device.to_host(result).astype(numpy.float32)
        stream, g = (_float64(device, array) for array in (chain.stream, chain.weights["last_norm"]))
        expected = normalised(stream, g, model.eps) @ _float64(device, chain.weights["head"][::every]).T
        finite = numpy.isfinite(got).all()
        error = self._close(chain, "the head", got[:, ::every] if finite else got[:, ::every] + numpy.nan, expected)
        return Check(
            compared="the head, against float64", relative_error=error, tolerance=self.tolerance[chain.case.dtype]
        )

    def _close(self, chain: Chain, what: str, got, expected) -> float:
        error = relative_error(got, expected)
        require_close(f"{self.name}, {chain.case}: {what}", error, self.tolerance[chain.case.dtype])
        return error


def case_of(found: dict, batch: int, context: int) -> Case:
    """Of a model as `config_file.find` gives it. Raises NotDense."""
    params = {"model": asdict(dense(found)), "config": found}
    return Case({"batch": batch, "context": context}, dtype_of(found), found["name"], params)


def dtype_of(found: dict) -> str:
    """Of weights, K/V and products."""
    return config_file.read(found).head.stored.name


def job_path(found: dict) -> str:
    """Of the record, below results/DEVICE/decode_step/."""
    return f"{config_file.file_name(found['name'])}_{dtype_of(found)}"


def _float64(device, array):
    return device.to_host(array).astype("float64")
