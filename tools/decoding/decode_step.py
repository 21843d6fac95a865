"""One decode step of a dense model behind the operator interface: settings, cases, inputs and check."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from roofline.core.accuracy import relative_error, require_close
from roofline.core.formatting import capacity
from roofline.devices.base import Identity
from roofline.models import config_file
from roofline.models.decoding import step as operations
from roofline.models.number_formats import PLAIN
from roofline.operators.base import WORKSPACE_BYTES, Case, Implementation, Job, Operator
from roofline.operators.model_decode.chain import Chain
from roofline.operators.model_decode.costs import CONSTANTS
from roofline.operators.model_decode.dense import Dense, NotDense, dense
from roofline.operators.model_decode.weights import draw, draw_cache
from roofline.operators.rmsnorm_matmul.hopper import MOST_ROWS
from roofline.operators.settings import Budget, ByEffort, EachOnce, OperatorSettings, Whole
from roofline.records.timing import Check

MOST_CONTEXT = 10**7  # tokens: no model has more
MOST_CACHED = 1 << 15  # tokens of all sequences that a check attends to: of more, every n-th sequence is compared
MOST_COMPARED = 1 << 25  # weights of the head that a check multiplies in float64: of more, every n-th row


class ModelDecodeSettings(OperatorSettings):
    """One decode step of each model of `models:` that is dense, at every batch size and context."""

    batch_sizes: Annotated[
        Annotated[list[Annotated[Whole, Field(le=MOST_ROWS)]], Field(min_length=1), EachOnce] | None,
        ByEffort([1], [1, 32], [1, 8, 32, 128]),
    ] = Field(default=None, description="sequences decoded at once; null: by effort")
    contexts: Annotated[list[Annotated[Whole, Field(le=MOST_CONTEXT)]], Field(min_length=1), EachOnce] = Field(
        default=[1024], description="tokens of each sequence, the new one among them"
    )
    implementations: Annotated[list[Literal["chain"]], Field(min_length=1), EachOnce] | None = Field(
        default=None, description="chain, on GPUs of compute capability 9.0; null: all that a device has"
    )
    time_budget_s: Annotated[Budget, ByEffort(0.1, 0.3, 2)] = Field(
        default=None, description="seconds for each batch size and context; null: by effort"
    )


class ModelDecode(Operator):
    name = "model_decode"
    Settings = ModelDecodeSettings
    unit = "tensor_core"
    tolerance: ClassVar = {"fp16": 2e-3, "bf16": 1e-2}
    implementations = (Chain,)
    constants = CONSTANTS

    def jobs(self, config) -> list[Job]:
        return [job for named in config.models if (job := self._job(config, config_file.find(named)))]

    def left_out(self, config) -> dict[str, str]:
        found = {}
        for named in config.models:
            model = config_file.find(named)
            try:
                dense(model)
            except NotDense as error:
                found[model["name"]] = str(error)
        return found

    def _job(self, config, found: dict) -> Job | None:
        """None of a model that the chain cannot run: it has its floor alone."""
        settings = getattr(config, self.rule)
        try:
            params = {"model": dense(found).as_dict(), "config": found}
        except NotDense:
            return None
        dtype = config_file.read(found).head.stored.name
        cases = [
            Case({"batch": batch, "context": context}, dtype, found["name"], params)
            for context in settings.contexts
            for batch in settings.batch_sizes
        ]
        return Job(f"{config_file.file_name(found['name'])}_{dtype}", tuple(cases))

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
        """None that would end a run before it begins: of a model that does not fit there is its floor alone."""
        return 0

    def unsupported(self, device, case: Case) -> str | None:
        """A case that the card's memory does not hold, with how many of the model's layers it would."""
        model, free = config_file.read(case.params["config"]), device.identity.memory_free_bytes
        cache = case.shape["batch"] * model.cache_bytes(case.shape["context"], PLAIN[case.dtype])
        needed = model.weight_bytes + cache + WORKSPACE_BYTES
        if needed <= free:
            return None
        matrices = sum(one.bytes for layer in model.layers for one in (*layer.linears, *layer.vectors))
        left, count = free - (needed - matrices - cache), len(model.layers)
        fit = max(0, int(left * count // (matrices + cache)))
        at = ", ".join(f"{name} {size}" for name, size in case.shape.items())
        needs = f"{capacity(needed)} needed at {at}, and {capacity(free)} free"
        return f"it does not fit: {needs}; {fit} of its {count} layers would"

    def profiled(self, config) -> list[Job]:
        """None: the profiler does not count graphs."""
        return []

    # -- inputs and check

    def rotated_inputs(self, device, case: Case, seed: int, count: int) -> list[dict]:
        """One set: the chain rotates among none. That of a model small enough for a cache is recorded as warm."""
        return [self.inputs(device, case, seed)]

    def inputs(self, device, case: Case, seed: int) -> dict:
        import numpy

        model, sizes = Dense(**case.params["model"]), case.shape
        tokens = numpy.random.default_rng(seed).integers(0, model.vocabulary, sizes["batch"], numpy.int32)
        cache = draw_cache(device, model, case.dtype, sizes["batch"], sizes["context"], seed + 10_000)
        return {**draw(device, model, case.dtype, seed), **cache, "tokens": device.array(tokens)}

    def reference(self, case: Case, inputs: dict):
        """The logits, of float64 arrays."""
        from roofline.operators.model_decode.reference import step

        return step(Dense(**case.params["model"]), inputs, inputs)

    def check(self, implementation: Implementation, scope: str | None) -> tuple[Check, float]:
        """The first layer, of as many sequences as the host has room for; then the step, and its head on what the
        layers left."""
        layer_error = self._layer_error(implementation)
        step = implementation.step(scope)
        seconds = implementation.device.step_times(step, 1)[0]
        check = self.compare(implementation, scope, 0, implementation.logits)
        told = "the first layer, and the head on the last one's result, against float64"
        return check.model_copy(update={"compared": told, "error": max(check.error, layer_error)}), seconds

    def _layer_error(self, chain: Chain) -> float:
        from roofline.operators.model_decode.reference import layer

        model, device = chain.model, chain.device
        for launch in chain.launches()[: 1 + chain.kernels_a_layer]:
            launch()
        few = slice(None, None, -(-chain.batch * chain.context // MOST_CACHED))
        got = _float64(device, chain.stream[few])
        of = {name.partition(".")[2]: array for name, array in chain.weights.items() if name.startswith("0.")}
        of |= {name: of[name][few] for name in ("keys", "values")}
        of = {name: _float64(device, array) for name, array in of.items()}
        x = _float64(device, chain.weights["embedding"][chain.weights["tokens"][few]])
        expected = layer(model, of, x, of["keys"], of["values"])
        return self._close(chain, "the first layer", got, expected)

    def compare(self, implementation: Implementation, scope: str | None, index: int, result) -> Check:
        """Every logit must be finite; of a large head every n-th is compared."""
        import numpy

        from roofline.operators.model_decode.reference import normalised

        chain, device = implementation, implementation.device
        model = chain.model
        every = -(-model.vocabulary * model.hidden // MOST_COMPARED) | 1
        got = device.to_host(result).astype(numpy.float32)
        stream, g = (_float64(device, array) for array in (chain.stream, chain.weights["last_norm"]))
        expected = normalised(stream, g, model.eps) @ _float64(device, chain.weights["head"][::every]).T
        finite = numpy.isfinite(got).all()
        error = self._close(chain, "the head", got[:, ::every] if finite else got[:, ::every] + numpy.nan, expected)
        tolerance = self.tolerance[chain.case.dtype]
        return Check(compared="the head, against float64", error=error, tolerance=tolerance)

    def _close(self, chain: Chain, what: str, got, expected) -> float:
        error = relative_error(got, expected)
        require_close(f"{self.name}, {chain.case}: {what}", error, self.tolerance[chain.case.dtype])
        return error

    def faults(self, config, devices: Iterable[Identity]) -> list[str]:
        """Contexts that are longer than a model's, where a device would run it."""
        if not any(self.implementations_on(one.kind) for one in devices):
            return []
        found = []
        for model in (config_file.read(case.params["config"]) for job in self.jobs(config) for case in job.cases[:1]):
            try:
                config_file.require_contexts(model, getattr(config, self.rule).contexts)
            except config_file.BadModel as error:
                found.append(f"{self.rule}.contexts: {error}")
        return found


def _float64(device, array):
    return device.to_host(array).astype("float64")
