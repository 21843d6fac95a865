"""Decode attention behind the operator interface: settings, cases, inputs and check."""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from roofline.core.dtypes import FLOAT_BYTES, array_dtype, dtype_bytes
from roofline.core.terms import Array, UserError
from roofline.devices.base import Device, Identity
from roofline.operators import base
from roofline.operators.base import Case, Implementation, Job, Operator, Prerequisite
from roofline.operators.constants import CPU_HOST_CONSTANTS, Constant, Constants, fitted, gpu_host_constants
from roofline.operators.decode_attention import attention_arithmetic as arithmetic
from roofline.operators.decode_attention import checkpoint
from roofline.operators.decode_attention.attention_arithmetic import AttentionShape, DecodeImplementation
from roofline.operators.decode_attention.checkpoint import Preset
from roofline.operators.decode_attention.eager_attention import EagerAttention
from roofline.operators.decode_attention.fused_attention import FusedAttention, FusedAttentionGraph
from roofline.operators.decode_attention.numpy_attention import NumpyAttention
from roofline.operators.drawing import Draw
from roofline.operators.setting_types import ByEffort, CompletedConfig, Listed, OperatorSettings, Settings, Whole
from roofline.records.files import file_sha256
from roofline.records.operator_record import DataFile
from roofline.records.timing_record import Check, make_check

GPU_CONSTANTS: Constants = {
    **gpu_host_constants(
        "array_operation_s", "kernel_launch_s", "kernel_argument_s", "graph_launch_s", "empty_kernel_s"
    ),
    "array_kernel_s": fitted(2.79e-06, "a small kernel after another in a stream"),
    "kernel_start_s": fitted(2.27e-06, "a kernel with nothing to read"),
    # Elsewhere: 1.3 us per launch in a graph on an H100 (Look Ma, No Bubbles); empty: 0.78 us.
    "graph_node_s": fitted(1.93e-06, "the same as one of many nodes of a graph"),
    "join_splits_s": fitted(1.82e-06, "partial results joined by the last"),
    "memory_wait_s": fitted(6.13e-07, "a block's wait for memory, once per tile of keys"),
    "block_s": fitted(3.1e-09, "a block's launch, of many with next to nothing to read"),
    "wave_s": fitted(2.52e-06, "a wave of blocks that did not fit the card at once waits for the memory anew"),
    "fp32_column_product_s_per_element": fitted(
        2.69e-12, "cuBLAS' products of stacked matrices with a column each, however fast the memory; of this card"
    ),
    "fp16_column_product_s_per_element": fitted(7.72e-12, "the same in fp16; of this card"),
    "fp32_projection_s_per_element": fitted(4.63e-12, "a library's product of few rows by weights, in fp32"),
    "fp16_projection_s_per_element": fitted(1.21e-12, "the same in fp16"),
    "pass_s_per_byte": fitted(7.87e-13, "a pass over an array between operations"),
    "fp8_conversion_s_per_number": Constant(
        4e-14,
        "measured on an H200, 2026-11: cvt.rn.f16x2.e4m3x2 at 54 per clock and multiprocessor",
        "an FP8 number that becomes fp16, on all multiprocessors; of this card",
    ),
    # Elsewhere: decode attention 37 to 90 % of HBM on Hopper cards (FlashMLA 84 to 90 %); 92 % on an RTX 4090 (calm).
    "stream_share": fitted(0.915, "of the memory ceiling that a long stream of reads attains"),
}


SCALES = (0.25, 1.0)  # between which those of FP8 keys and values are drawn
WHAT_IF_DTYPES = ("fp32", "fp16", "bf16")
WHAT_IF_BATCHES = [2**power for power in range(10)]
WHAT_IF_SEQ_LENS = [2**power for power in range(4, 14)]


CacheDtype = Literal["fp32", "fp16", "bf16", "fp8_e4m3"]


class DecodeSettings(OperatorSettings):
    """Decode attention: one token's query against a cache of S keys and values. One job for each S and dtype."""

    presets: Listed[str] = Field(default=["minigpt"])
    seq_lens: Listed[Whole] = Field(default=[128, 256, 512, 1024])
    dtypes: Annotated[Listed[CacheDtype] | None, ByEffort(["fp32"], ["fp32", "fp16"], ["fp32", "fp16"])] = None
    batch_sizes: Listed[Whole] = Field(default=[1, 256])
    scopes: Annotated[Listed[Literal["core", "block"]] | None, ByEffort(["core"], ["core"], ["core", "block"])] = None
    implementations: Listed[Literal["eager", "fused", "fused_graph", "numpy"]] | None = None  # type: ignore[assignment]  # lists are invariant


PresetName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


class ModelSettings(Settings):
    """The model whose attention is measured."""

    checkpoint: Annotated[str, Field(min_length=1)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    presets: Annotated[dict[PresetName, Preset], Field(min_length=1)] = Field(
        default={
            "minigpt": Preset(layers=6, heads=8, head_size=64),
            "gpt2": Preset(layers=12, heads=12, head_size=64),
            "llama-3-8b": Preset(layers=32, heads=32, kv_heads=8, head_size=128),
        }
    )


class DecodeAttention(Operator):
    """Attention of one token per sequence over its cached keys and values; scope `block` adds its two projections."""

    name = "decode_attention"
    rule = "decode_attn"
    picture = "attention"
    Settings = DecodeSettings
    sections: ClassVar = {"model": ModelSettings}
    unit = "tensor_core"
    implementations = (EagerAttention, FusedAttention, FusedAttentionGraph, NumpyAttention)
    constants: ClassVar = {"gpu": GPU_CONSTANTS, "cpu": CPU_HOST_CONSTANTS}
    drawn_sizes: ClassVar = {"batch": (1, 512, 1), "seq_len": (16, 8192, 1)}
    drawn_dtypes = WHAT_IF_DTYPES
    prerequisite = Prerequisite(
        rule="checkpoint",
        pattern="results/checkpoints/{name}.safetensors",
        params=lambda config, name: {**config.model.presets[name].model_dump(), "seed": config.model.seed},
        make=checkpoint.make_checkpoint,
    )

    def jobs(self, config: CompletedConfig) -> list[Job]:
        settings, model = getattr(config, self.rule), config.model
        choices = itertools.product(settings.presets, settings.seq_lens, settings.dtypes)
        return [self._job(settings, model, preset, seq_len, dtype) for preset, seq_len, dtype in choices]

    def _job(self, settings: DecodeSettings, model: ModelSettings, preset: str, seq_len: int, dtype: str) -> Job:
        """Return the job of a preset, S and dtype, with a case for each batch size."""
        weights = model.checkpoint or self.prerequisite.pattern.format(name=preset)
        sizes = model.presets[preset]
        params = {"weights": weights, "seed": model.seed, "layers": sizes.layers, **sizes.head_sizes}
        shapes = [AttentionShape(batch=batch, seq_len=seq_len, **sizes.head_sizes) for batch in settings.batch_sizes]
        cases = tuple(Case(shape.as_dict(), dtype, preset, params) for shape in shapes)
        return Job(f"{preset}/S{seq_len}_{dtype}", cases, (weights,))

    def least_samples(self, case: Case) -> int:
        return base.LEAST_GPU_SAMPLES if case.shape["batch"] == 1 else 1

    def flops(self, case: Case, scope: str | None = "core") -> int:
        return arithmetic.attention_flops(AttentionShape(**case.shape), scope)

    def bytes(self, case: Case, scope: str | None = "core") -> int:
        return arithmetic.attention_bytes(AttentionShape(**case.shape), case.dtype, scope)

    def smallest(self, case: Case) -> Case:
        return case.resized(batch=1, seq_len=1, heads=AttentionShape(**case.shape).group, kv_heads=1)

    def variations(self, case: Case) -> list[Case]:
        """Return the case at every batch, S and dtype that a reader of report.html may choose."""
        sizes = itertools.product(WHAT_IF_DTYPES, WHAT_IF_BATCHES, WHAT_IF_SEQ_LENS)
        return [replace(case.resized(batch=batch, seq_len=seq_len), dtype=dtype) for dtype, batch, seq_len in sizes]

    def draw_case(self, draw: Draw, sizes: dict[str, int]) -> Case:
        """Return a case of one of the presets that every config begins with. It has no weights: its query is drawn."""
        presets = ModelSettings().presets
        name = draw.choose(sorted(presets))
        params = {"weights": None, "layers": presets[name].layers, **presets[name].head_sizes}
        return Case({**sizes, **presets[name].head_sizes}, draw.choose(self.drawn_dtypes), name, params)

    # -- inputs and check

    def inputs(self, device: Device, case: Case, seed: int) -> dict:
        return self.rotated_inputs(device, case, seed, 1)[0]

    def rotated_inputs(self, device: Device, case: Case, seed: int, count: int) -> list[dict]:
        """Return keys and values [batch, K/V heads, S, head size]; of FP8 ones also `keys_scales` and `values_scales`,
        [batch, K/V heads] in fp32."""
        import numpy

        shape = AttentionShape(**case.shape)
        heads = (count, 2, shape.batch, shape.kv_heads)
        caches = device.normal((*heads, shape.seq_len, shape.head_size), case.dtype, seed)
        copies = [{"keys": keys, "values": values} for keys, values in caches]
        if case.dtype == arithmetic.FP8:
            scales = numpy.random.default_rng(seed).uniform(*SCALES, heads).astype(numpy.float32)
            for copy, (keys_scales, values_scales) in zip(copies, device.to_device(scales), strict=True):
                copy |= {"keys_scales": keys_scales, "values_scales": values_scales}
        return copies

    def shared_inputs(self, device: Device, case: Case, seed: int) -> dict:
        """Return the projections of one layer (`query`, `output`: [hidden, hidden], and their biases), the hidden state
        of one token per sequence, and its query. A shape of fewer heads than the model's takes the first of them.

        Without a file of weights there are no projections; hidden state and query are normal numbers.
        """
        shape, params, dtype = AttentionShape(**case.shape), case.params, arithmetic.query_dtype(case.dtype)
        if params["weights"] is None:
            hidden = device.normal((shape.batch, shape.hidden_size), dtype, seed)
            return {"layer": {}, "hidden": hidden, "query": hidden.reshape(shape.batch, shape.heads, shape.head_size)}
        preset = checkpoint.preset_from(params)
        layer, hidden, *_ = checkpoint.load_layer(params["weights"], preset, shape.batch, seed=params["seed"])
        size, as_dtype = shape.hidden_size, array_dtype(dtype)
        layer = {name: weights[(slice(size),) * weights.ndim] for name, weights in layer.items()}
        on_device = {name: device.to_device(weights).astype(as_dtype) for name, weights in layer.items()}
        states = device.to_device(hidden[:, :size]).astype(as_dtype)
        query = arithmetic.project_query(device, shape, states, on_device)
        return {"layer": on_device, "hidden": states, "query": query}

    def reference(self, case: Case, inputs: dict) -> Array:
        return arithmetic.reference_attention(inputs["query"], inputs["keys"], inputs["values"])

    def compare(self, implementation: Implementation, scope: str | None, index: int, result: Array) -> Check:
        """Compare every head of the first and the last sequence with float64 arithmetic on the same inputs.

        The error is that of the worst head; of a block, whose output projection mixes the heads, of the worst sequence.
        """
        import numpy

        assert isinstance(implementation, DecodeImplementation)  # as all of `implementations`
        device, case = implementation.device, implementation.case
        rows = sorted({0, case.shape["batch"] - 1})
        result = device.to_host(result[rows]).astype(numpy.float64)
        if scope == "block":
            expected, part = _compute_block_reference(implementation, rows, index), "sequences"
            result = result.reshape(expected.shape)
        else:
            query = device.to_host(implementation.shared["query"][rows])
            expected, part = _compute_core_reference(implementation, rows, query, index), "heads"
        error = arithmetic.worst_head_error(result, expected)
        label = f"{self.name}, {implementation.name} {scope}, {case}: the result"
        compared = f"{part} of {len(rows)} sequences against float64, the worst of them"
        return make_check(label, error, implementation.tolerance[case.dtype], compared)

    def memory_needed(self, case: Case, last_level_cache_bytes: int) -> int:
        """Return the bytes of a case: rotated caches and weights, scores, caches that are widened, and libraries."""
        shape, dtype = AttentionShape(**case.shape), case.dtype
        cache_bytes = arithmetic.kv_cache_bytes(shape, dtype)
        caches = base.count_rotation_copies(cache_bytes, last_level_cache_bytes) * cache_bytes
        # Graphs round the caches up to whole models of them, which are smaller than the rotation itself.
        rounding = base.COLD_CACHE_MULTIPLE * last_level_cache_bytes
        block_bytes = arithmetic.attention_bytes(shape, dtype, "block")
        block_copies = base.count_rotation_copies(block_bytes, last_level_cache_bytes)
        weights = block_copies * arithmetic.projection_bytes(shape, dtype)
        widened = 2 * cache_bytes if dtype_bytes(dtype) < FLOAT_BYTES else 0  # where the device emulates the dtype
        scores = 3 * 4 * shape.batch * shape.heads * shape.seq_len
        return caches + rounding + weights + widened + scores + base.LIBRARY_WORKSPACE_BYTES

    # -- settings and records

    def data_files(self, job: Job) -> list[DataFile]:
        case = job.cases[0]
        params, path = case.params, case.params["weights"]
        if path is None:
            return []
        preset = checkpoint.preset_from(params)
        _, _, naming, hidden_from = checkpoint.load_layer(path, preset, 1, seed=params["seed"])
        description = f"weights in {naming}'s naming; hidden state: {hidden_from}"
        generated = checkpoint.is_generated(path)
        return [DataFile(path=path, sha256=file_sha256(path), generated=generated, description=description)]

    def notes(self, device: Device, case: Case) -> list[str]:
        """Return lines for the record: that the device emulates the dtype, or that eager steps widen bf16 matrices."""
        # A device that emulates dtypes skips FP8.
        notes = [] if case.dtype == arithmetic.FP8 else super().notes(device, case)
        if device.kind == "gpu" and case.dtype == "bf16":
            notes.append("eager: CuPy multiplies no stacks of bf16 matrices; they are fp32 in every step")
        return notes

    def faults(self, config: CompletedConfig, devices: Iterable[Identity]) -> list[str]:
        names, path, presets = getattr(config, self.rule).presets, config.model.checkpoint, config.model.presets
        known_presets = {name: presets[name] for name in names if name in presets}
        allowed = f"allowed: {', '.join(presets)} (model.presets)"
        faults = [f"{self.rule}.presets: {name!r} is unknown; {allowed}" for name in names if name not in presets]
        for name, preset in presets.items():
            if preset.kv_heads and preset.heads % preset.kv_heads:
                problem = f"{preset.heads} heads cannot share {preset.kv_heads} K/V heads evenly"
                faults.append(f"model.presets.{name}: {problem}; allowed: kv_heads that divide heads")
        if not path:
            return faults
        if len(known_presets) > 1:
            models = ", ".join(known_presets)
            return [*faults, f"model.checkpoint: one file cannot be {models}; allowed: one of {self.rule}.presets"]
        try:
            for preset in known_presets.values():
                checkpoint.check_checkpoint(path, preset)
        except UserError as error:
            faults += error.lines
        return faults


def _compute_core_reference(implementation: DecodeImplementation, rows: list[int], query: Array, index: int) -> Array:
    """Return [rows, heads, head size] for queries of that shape. Since a cache may be large, it goes through the K/V
    heads one by one."""
    import numpy

    shape, copy, expected = implementation.shape, implementation.copy_of(index), numpy.empty(query.shape)
    for position, row in enumerate(rows):
        for head in range(shape.kv_heads):
            group = slice(head * shape.group, (head + 1) * shape.group)
            keys, values = (
                arithmetic.cached_head(implementation.device, copy, name, row, head)[None, None]
                for name in ("keys", "values")
            )
            row_query = query[position : position + 1, group]
            expected[position, group] = arithmetic.reference_attention(row_query, keys, values)[0]
    return expected


def _compute_block_reference(implementation: DecodeImplementation, rows: list[int], index: int) -> Array:
    """Return the result of a block for some sequences, [rows, hidden]."""
    import numpy

    shape, shared = implementation.shape, implementation.shared
    to_host = implementation.device.to_host
    weights = implementation.layers[index % len(implementation.layers)]
    layer = {name: to_host(array).astype(numpy.float64) for name, array in weights.items()}
    hidden = to_host(shared["hidden"][rows]).astype(numpy.float64)
    query = (hidden @ layer["query"] + layer["query_bias"]).reshape(len(rows), shape.heads, -1)
    attended = _compute_core_reference(implementation, rows, query, index).reshape(len(rows), shape.hidden_size)
    return attended @ layer["output"] + layer["output_bias"]
