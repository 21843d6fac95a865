"""What the picture of the roofline says, before anything has a place: words, colours, markers, values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.core.formatting import level_words, number, percent

# Okabe and Ito's palette, safe for the colour-blind. A dtype has one colour, as a ceiling and as a dot.
DTYPE_COLOURS = {
    "fp64": "#009E73",
    "fp32": "#D55E00",
    "tf32": "#E69F00",
    "fp16": "#0072B2",
    "bf16": "#56B4E9",
    "fp8_e4m3": "#CC79A7",
    "int8": "#000000",
}
OTHER_DTYPE, INK, MUTED = "#777777", "#22262b", "#646a73"
# The same in every picture, so that an implementation is known again; a block looks like its core.
KNOWN_MARKERS = {}
MARKERS = "osph*<>8H"
UNITS = {"tensor_core": "tensor cores", "cuda_core": "CUDA cores"}
HOST_LINK = ("h2d", "d2h")
SLOPES = {  # the memory ceilings that operators may stand under, best first
    "hbm_read": "reading device memory",
    "d2d": "device-to-device copy",
    "dram_read": "reading memory",
    "dram_copy": "copy in memory",
}
CACHES, ALL_CORES = ("l1", "l2", "l3"), "all_cores"
CUDA_CORES = "fp32_fma"  # the one peak of register-only kernels that is drawn without a dot
PREDICTED_SIZE = 3.0
MOST_LISTED = 5  # lengths S that the legend lists one by one
SETTLED = 0.99  # of its roof: a sustained figure above it is no line of its own
SUSTAINED_DASHES, FMA_DASHES, SOLID = (3.0, 2.0), (6.0, 2.0, 1.0, 2.0), (1.0, 0.0)
COUNTING = (
    "Every line and every filled dot is measured. Per cent: attained of the dot's own roof, which is the lower of "
    "its dtype's ceiling and intensity × the bandwidth of its memory level. A multiply-add is two FLOPs. Bytes: "
    "GEMM, A, B and C once each; decode attention, K and V once (block: and the projections' weights); a copy, read "
    "plus written. Vendor: the dense peak, without sparsity. Formula: cores × clock × FLOPs a cycle."
)


@dataclass(frozen=True)
class ComputeCeiling:
    tflops: float
    text: str
    colour: str
    sustained: float | None  # None where it is the roof itself, within 1 %
    fma: bool
    strong: bool = True  # more stands under it than its own products


@dataclass(frozen=True)
class MemoryCeiling:
    gb_per_s: float
    text: str
    weight: str  # bold, normal or faint


@dataclass(frozen=True)
class Dot:
    x: float | None  # FLOP/byte; None where there is no traffic: at the right edge
    y: float  # TFLOPS
    colour: str
    marker: str
    hollow: bool
    name: str = ""  # what tells it from its neighbours, without S
    seq_len: int | None = None
    value: str = ""
    series: tuple = ()  # equal for dots that differ in S alone
    measured: float | None = None  # of a predicted dot: TFLOPS of the one that it foretold


@dataclass(frozen=True)
class Entry:
    """A line of the legend."""

    marker: str
    colour: str
    text: str
    size: float = 6.2
    hollow: bool = False
    dashes: tuple[float, ...] = ()  # a line instead of the marker


@dataclass(frozen=True)
class Panel:
    """One device."""

    title: str
    subtitle: str
    compute: tuple[ComputeCeiling, ...]
    memory: tuple[MemoryCeiling, ...]
    dots: tuple[Dot, ...]
    predicted: tuple[Dot, ...]
    legend: tuple[Entry, ...]
    notes: tuple[str, ...]
    seq_lens: tuple[int, ...] = ()  # S of every series, where all have the same: labels then need not say it


def panels(roofline: dict) -> list[Panel]:
    """GPUs first. A marker means the same in every panel."""
    devices = sorted(roofline["devices"], key=lambda device: roofline["devices"][device]["kind"] != "gpu")
    markers = markers_of(roofline["operators"])
    return [_panel(roofline, device, markers) for device in devices]


def markers_of(operators: Sequence[dict]) -> dict[str, str]:
    """A marker for each key."""
    keys = dict.fromkeys(marker_key(operator) for operator in operators)
    others = [key for key in keys if key not in KNOWN_MARKERS]
    return KNOWN_MARKERS | {key: MARKERS[i % len(MARKERS)] for i, key in enumerate(others)}


def _panel(roofline: dict, device: str, markers: dict[str, str]) -> Panel:
    ceilings, operators, skipped, levels = (
        [item for item in roofline.get(key, []) if item["device"] == device]
        for key in ("ceilings", "operators", "skipped", "levels")
    )
    compute, memory, left_out = _chosen(ceilings, operators)
    bold = _bold(memory, operators)
    others = {o["compute_ceiling"] for o in operators if o["operator"] != "gemm"}
    lines = [_compute(ceiling, not others or ceiling["name"] in others) for ceiling in compute]
    dots, predicted = _dots(operators, markers), _predicted(operators, markers)
    seq_lens = _common_seq_lens(dots)
    return Panel(
        title=roofline["devices"][device]["name"],
        subtitle=" · ".join([device, "measured roofline", *(_slope_words(c) for c in memory if c["name"] == bold)]),
        compute=tuple(lines),
        memory=(
            *(_memory(c, bold, operators) for c in memory if c["name"] not in HOST_LINK),
            *_found_caches(levels, ceilings),
            *_host_link(memory),
        ),
        dots=dots,
        predicted=predicted,
        legend=tuple(_legend(operators, markers, dots, predicted, lines, seq_lens)),
        seq_lens=seq_lens,
        notes=tuple(_notes(ceilings, operators, skipped, left_out)),
    )


# ------------------------------------------------------------------------------------------------ numbers


# ----------------------------------------------------------------------------------------------- ceilings


def _chosen(ceilings: Sequence[dict], operators: Sequence[dict]) -> tuple[list[dict], list[dict], list[dict]]:
    """The compute and the memory ceilings that are drawn, and the rest: what no dot needs would hide what dots need."""
    needed = {o["compute_ceiling"] for o in operators} | {o["memory_ceiling"] for o in operators}
    memory = [c for c in ceilings if c["kind"] == "memory"]
    drawn = needed | {CUDA_CORES, *CACHES, *HOST_LINK, *_usual_slope(memory, needed)}

    def is_drawn(ceiling: dict) -> bool:
        return ceiling["name"] in drawn or ceiling.get("method") == "gemm"

    return (
        [c for c in ceilings if c["kind"] == "compute" and is_drawn(c)],
        [c for c in memory if is_drawn(c)],
        [c for c in ceilings if not is_drawn(c)],
    )


def _usual_slope(memory: Sequence[dict], needed: set) -> list[str]:
    """Where no operator names a memory ceiling, the one that operators would stand under."""
    there = [ceiling["name"] for ceiling in memory]
    return [] if needed & set(there) else [name for name in SLOPES if name in there][:1]


def _bold(memory: Sequence[dict], operators: Sequence[dict]) -> str | None:
    """The slope that most dots stand under."""
    there = [ceiling["name"] for ceiling in memory]
    named = [name for operator in operators if (name := operator["memory_ceiling"]) in there]
    return max(named, key=named.count) if named else next(iter(_usual_slope(memory, set())), None)


def _slope_words(ceiling: dict) -> str:
    words = SLOPES.get(ceiling["name"]) or level_words(ceiling["name"])
    return f"bold slope = measured {words}, {number(ceiling['gb_per_s'])} GB/s"


def _compute(ceiling: dict, strong: bool) -> ComputeCeiling:
    name = " ".join(filter(None, [ceiling["name"], UNITS.get(ceiling["unit"])]))
    promise = "formula" if ceiling["unit"] == "cpu" else "vendor"  # no vendor promises a CPU's peak
    sustained = ceiling.get("sustained_tflops")
    return ComputeCeiling(
        tflops=ceiling["tflops"],
        text=f"{name} {number(ceiling['tflops'])} TFLOPS{_share(ceiling, promise)}",
        colour=dtype_colour(ceiling["name"]),
        sustained=sustained if sustained and sustained < SETTLED * ceiling["tflops"] else None,
        fma=ceiling["method"] == "fma",
        strong=strong,
    )


def _memory(ceiling: dict, bold: str | None, operators: Sequence[dict]) -> MemoryCeiling:
    """Under its own name where operators stand under it, as acceptance looks for it; else as levels are written."""
    name = ceiling["name"]
    shown = name if any(o["memory_ceiling"] == name for o in operators) else level_words(name)
    return MemoryCeiling(
        ceiling["gb_per_s"], memory_text(ceiling | {"name": shown}), "bold" if name == bold else "normal"
    )


def _found_caches(levels: Sequence[dict], ceilings: Sequence[dict]) -> Iterable[MemoryCeiling]:
    """Caches that only the sweep knows, as on a CPU: of all its cores, since other series are of a part of a device."""
    known = {ceiling["name"] for ceiling in ceilings}
    for level in levels:
        if level["series"] == ALL_CORES and level["name"] in CACHES and level["name"] not in known:
            text = f"{level_words(level['name'])} {number(level['gb_per_s'])} GB/s, from the sweep"
            yield MemoryCeiling(level["gb_per_s"], text, "normal")


def _host_link(memory: Sequence[dict]) -> Iterable[MemoryCeiling]:
    """The two directions of the host link differ by less than a line's width: one line, both values in a note."""
    found = [ceiling for ceiling in memory if ceiling["name"] in HOST_LINK]
    if found:
        names = " and ".join(ceiling["name"] for ceiling in found)
        yield MemoryCeiling(max(ceiling["gb_per_s"] for ceiling in found), f"host link: {names}", "faint")


def memory_text(ceiling: dict) -> str:
    return f"{_value(ceiling)}{_share(ceiling, 'vendor')}"


def _value(ceiling: dict) -> str:
    value, unit = (ceiling["tflops"], "TFLOPS") if ceiling["kind"] == "compute" else (ceiling["gb_per_s"], "GB/s")
    return f"{ceiling['name']} {number(value)} {unit}"


def _share(ceiling: dict, promise: str) -> str:
    fraction = ceiling.get("fraction_of_vendor")
    return "" if fraction is None else f" · {percent(fraction)} of {promise}"


def dtype_colour(name: str) -> str:
    """The colour of a dtype, or of a ceiling named after one (fp32_fma)."""
    return DTYPE_COLOURS.get(name) or DTYPE_COLOURS.get(name.split("_")[0], OTHER_DTYPE)


# --------------------------------------------------------------------------------------------------- dots


def marker_key(operator: dict) -> str:
    """What has a marker of its own: an implementation of an operator; all the user's operations share one."""
    if operator["operator"] == "operation":
        return "operations of the user"
    block = "block" if operator["scope"] == "block" else None
    return ", ".join(filter(None, [operator["operator"].replace("_", " "), operator["implementation"], block]))


def operation_name(operator: dict) -> str:
    return str(operator.get("name") or operator["implementation"] or operator["operator"])


def _dots(operators: Sequence[dict], markers: dict[str, str]) -> tuple[Dot, ...]:
    """What has no measured place stands at its roof. Zero has no place on a logarithmic axis."""
    varying, found = _varying(operators), []
    for place, operator in enumerate(operators):
        attained, fraction = operator["attained_tflops"], operator["fraction_of_roof"]
        x, y = operator["intensity_flops_per_byte"], operator["roof_tflops"] if attained is None else attained
        if not y or not (x or operator["no_traffic"]):
            continue
        found.append(
            Dot(
                x=None if operator["no_traffic"] else x,
                y=y,
                colour=dtype_colour(operator["dtype"]),
                marker=markers[marker_key(operator)],
                hollow=attained is None,
                name=" ".join(_distinctions(operator, varying)),
                seq_len=operator["shape"].get("seq_len"),
                value="not measured" if fraction is None else percent(fraction),
                series=_series(operator) if "seq_len" in operator["shape"] else (place,),
            )
        )
    return tuple(found)


def _common_seq_lens(dots: Sequence[Dot]) -> tuple[int, ...]:
    """The lengths S of a series, where every series of several dots has the same; else none."""
    found: dict[tuple, list[int]] = {}
    for dot in dots:
        if dot.seq_len is not None and dot.value.endswith("%"):
            found.setdefault(dot.series, []).append(dot.seq_len)
    lists = {tuple(sorted(lengths)) for lengths in found.values() if len(lengths) > 1}
    return lists.pop() if len(lists) == 1 else ()


def _series(operator: dict) -> tuple:
    fields = ("operator", "implementation", "preset", "scope", "dtype", "cache")
    shape = [item for item in operator["shape"].items() if item[0] != "seq_len"]
    return (*(operator[field] for field in fields), *shape)


def _distinctions(operator: dict, varying: set[str]) -> list[str]:
    shape = operator["shape"]
    if operator["operator"] == "operation":
        return [operation_name(operator)]
    if operator["operator"] == "gemm":
        return [f"GEMM {_sides(shape)}"] if "sides" in varying else []
    words = [operator["implementation"]] if "implementation" in varying else []
    words += [f"b={shape['batch']}"] if "batch" in varying & shape.keys() else []
    told = ("seq_len", "batch", *(("heads", "kv_heads", "head_size") if "preset" in varying else ()))
    words += [f"{key}={shape[key]}" for key in shape if key in varying and key not in told]
    words += ["block"] if operator["scope"] == "block" else []
    return words + [str(operator[key]) for key in ("cache", "preset") if key in varying and operator[key]]


def _sides(shape: dict) -> str:
    sides = [shape[side] for side in "mnk"]
    return f"{sides[0]}³" if len(set(sides)) == 1 else "×".join(map(str, sides))


def _varying(operators: Sequence[dict]) -> set[str]:
    """The fields in which operators of one kind differ: only these need to be told at every dot."""
    values: dict[tuple[str, str], set] = {}
    for operator in operators:
        fields = {key: operator.get(key) for key in ("implementation", "cache", "preset")} | operator["shape"]
        if operator["operator"] == "gemm":
            fields = {"sides": _sides(operator["shape"])}
        for key, value in fields.items():
            values.setdefault((operator["operator"], key), set()).add(str(value))
    return {key for (kind, key), found in values.items() if len(found) > 1 and kind != "operation"}


def _predicted(operators: Sequence[dict], markers: dict[str, str]) -> tuple[Dot, ...]:
    found = []
    for operator in operators:
        sealed = (operator.get("predicted") or {}).get("sealed") or {}
        x, latency = operator["intensity_flops_per_byte"], sealed.get("latency_s")
        if x and latency and operator["flops"] and operator["attained_tflops"]:
            y = operator["flops"] / latency / 1e12
            colour, marker = dtype_colour(operator["dtype"]), markers[marker_key(operator)]
            found.append(Dot(x, y, colour, marker, True, measured=operator["attained_tflops"]))
    return tuple(found)


# ------------------------------------------------------------------------------------------ around the plot


def _legend(
    operators: Sequence[dict],
    markers: dict[str, str],
    dots: Sequence[Dot],
    predicted: Sequence[Dot],
    lines: Sequence[ComputeCeiling],
    seq_lens: Sequence[int],
) -> Iterable[Entry]:
    sides = {_sides(operator["shape"]) for operator in operators if operator["operator"] == "gemm"}
    for key, operator in {marker_key(operator): operator for operator in operators}.items():
        of_one_size = operator["operator"] == "gemm" and len(sides) == 1
        yield Entry(markers[key], INK, f"{key}, {_sides(operator['shape'])}" if of_one_size else key)
    ceilings = {operator["compute_ceiling"] for operator in operators}
    for dtype in dict.fromkeys(o["dtype"] for o in operators if o["dtype"] not in ceilings):
        yield Entry("s", dtype_colour(dtype), f"{dtype} (no ceiling of its own)")
    if seq_lens:
        listed = ", ".join(map(str, seq_lens))
        many = f"{len(seq_lens)} from {seq_lens[0]} to {seq_lens[-1]}"
        yield Entry("", MUTED, f"joined: S = {listed if len(seq_lens) <= MOST_LISTED else many}", dashes=SOLID)
    lengths = {dot.seq_len for dot in dots if dot.seq_len is not None}
    if len(lengths) == 1:
        yield Entry("", MUTED, f"decode attention at S = {lengths.pop()}")
    if any(dot.hollow for dot in dots):
        yield Entry("o", INK, "hollow: not measured, at its roof", hollow=True)
    if predicted:
        yield Entry("o", MUTED, "small, hollow: as predicted", PREDICTED_SIZE, hollow=True)
    if any(line.sustained for line in lines):
        yield Entry("", MUTED, "lighter: under sustained load", dashes=SUSTAINED_DASHES)
    if any(line.fma for line in lines):
        yield Entry("", MUTED, "multiply-adds in registers", dashes=FMA_DASHES)


def _notes(
    ceilings: Sequence[dict], operators: Sequence[dict], skipped: Sequence[dict], left_out: Sequence[dict]
) -> Iterable[str]:
    link = [memory_text(ceiling) for ceiling in ceilings if ceiling["name"] in HOST_LINK]
    if link:
        yield f"Host link: {'; '.join(link)}."
    if left_out:
        told = [_value(ceiling | {"name": level_words(ceiling["name"])}) for ceiling in left_out]
        yield f"Measured and not drawn: {'; '.join(told)}."
    if any(ceiling["name"] == "int8" for ceiling in ceilings):
        yield "int8 counts integer operations: its TFLOPS are TOPS."
    if len({operator["scope"] for operator in operators} & {"core", "block"}) == 2:
        yield "Decode attention: the core alone, or where so marked the block with its projections."
    without_traffic = [operation_name(o) for o in operators if o["no_traffic"] and o["flops"]]
    if without_traffic:
        yield f"At the right edge, without traffic and so of infinite intensity: {', '.join(without_traffic)}."
    without_flops = [operation_name(o) for o in operators if not o["flops"]]
    if without_flops:
        yield f"Without FLOPs, so without a place on these axes: {', '.join(without_flops)}."
    if skipped:
        yield f"Skipped: {'; '.join(_skipped(skipped))}."


def _skipped(skipped: Sequence[dict]) -> Iterable[str]:
    """What was not measured, each reason once. One that several share is cut to its first clause."""
    groups: dict[str, list[dict]] = {}
    for item in skipped:
        groups.setdefault(re.sub(rf"\b{re.escape(item['dtype'])}\b", "such", item["reason"]), []).append(item)
    for reason, items in groups.items():
        names = ", ".join(item.get("name") or item["dtype"] for item in items)
        yield f"{names} ({items[0]['reason'] if len(items) == 1 else re.split('; |, it ', reason)[0]})"
