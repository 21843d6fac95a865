"""Which ceilings the picture of the roofline shows, how, and in which words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roofline.core.formatting import counted, level_words, number, percent, starred
from roofline.devices.levels import ALL_CORES, SWEPT_CACHES, TRANSFERS
from roofline.report.words import shares as of_vendor
from roofline.report.words import span
from roofline.table.rows import Cell, ComputeCeiling, MemoryCeiling, Plateau

Ceiling = ComputeCeiling | MemoryCeiling
UNITS = {"tensor_core": "tensor cores", "cuda_core": "CUDA cores"}
CUDA_CORES = "fp32_fma"  # the one peak of register-only kernels that is drawn without a dot
SETTLED = 0.99  # of its roof: a sustained figure above it is no line of its own


@dataclass(frozen=True)
class Level:
    """A ceiling as it is drawn."""

    name: str
    value: float  # TFLOPS or GB/s
    text: str
    look: str  # bold, normal, faint; of a compute ceiling also fma
    dtype: str | None = None
    sustained: float | None = None  # None where it is the roof itself, within 1 %


def main_memory_ceiling(ceilings: Iterable[Ceiling], operators: Iterable[Cell]) -> MemoryCeiling | None:
    """The roof of memory that most operators stand under, on however many cores, or else would."""
    there = {c.name: c for c in ceilings if c.kind == "memory"}
    whole = {(c.level, c.mix): name for name, c in there.items() if c.cores is None}
    under = [there[o.memory_ceiling] for o in operators if o.memory_ceiling in there]
    named = [c.name if c.cores is None else whole.get((c.level, c.mix), "") for c in under]
    main = [c.name for c in there.values() if c.level in ("hbm", "dram") and c.mix == "read" and c.cores is None]
    found = [name for name in named if name in there] or main[:1]
    return there[max(found, key=found.count)] if found else None


def drawn(ceilings: Sequence[Ceiling], operators: Sequence[Cell]) -> list[Ceiling]:
    """What no dot needs would hide what dots need."""
    needed = {o.compute_ceiling for o in operators} | {o.memory_ceiling for o in operators}
    needed |= {CUDA_CORES, *SWEPT_CACHES, *TRANSFERS}
    bold = main_memory_ceiling(ceilings, operators)
    return [c for c in ceilings if c is bold or c.name in needed or (c.kind == "compute" and c.method == "gemm")]


def compute_levels(ceilings: Sequence[Ceiling], operators: Sequence[Cell]) -> list[Level]:
    return [_compute(ceiling, operators) for ceiling in ceilings if ceiling.kind == "compute"]


def memory_levels(ceilings: Sequence[Ceiling], operators: Sequence[Cell], found: Sequence[Plateau]) -> list[Level]:
    bold, under = main_memory_ceiling(ceilings, operators), {o.memory_ceiling for o in operators}
    levels = []
    for c in ceilings:
        if c.kind == "memory" and c.name not in TRANSFERS:
            name = c.name if c.name in under else level_words(c.name)  # the operators' word for it, or people's
            levels.append(Level(c.name, c.gb_per_s, _memory_text(c, name), "bold" if c is bold else "normal"))
    known = {ceiling.name for ceiling in ceilings}
    for cache in found:  # that only the sweep knows, as on a CPU: by all cores, since other series are of a part of it
        if cache.series == ALL_CORES and cache.name in SWEPT_CACHES and cache.name not in known:
            text = f"{level_words(cache.name)} {number(cache.gb_per_s)} GB/s, from the sweep"
            levels.append(Level(cache.name, cache.gb_per_s, text, "normal"))
    link = [ceiling for ceiling in ceilings if ceiling.name in TRANSFERS]
    if link:  # both directions differ by less than a line's width: one line, and both values in a note
        names = " and ".join(ceiling.name for ceiling in link)
        fastest = max(ceiling.gb_per_s for ceiling in link)
        levels.append(Level("host_link", fastest, f"host link: {names}", "faint"))
    return levels


def notes(ceilings: Sequence[Ceiling], shown: Sequence[Ceiling]) -> Iterable[str]:
    link = [_memory_text(ceiling, ceiling.name) for ceiling in ceilings if ceiling.name in TRANSFERS]
    if link:
        yield f"Host link: {'; '.join(link)}."
    peers = [c for c in ceilings if c.kind == "memory" and c.level == "p2p"]
    if copies := sorted(c.gb_per_s for c in peers if c.mix == "copy" and not c.both_ways):
        yield f"Copies to {counted(len(copies), 'other GPU')}: {span(copies)} GB/s."
    left_out = [f"{level_words(c.name)} {_value(c)}" for c in ceilings if c not in shown and c not in peers]
    if left_out:
        yield f"Measured and not drawn: {'; '.join(left_out)}."
    if any(ceiling.doubt for ceiling in ceilings):
        yield "* disturbed, throttled, too few samples, or contradicted: do not use."
    if any(ceiling.name == "int8" for ceiling in ceilings):
        yield "int8 counts integer operations: its TFLOPS are TOPS."


def _compute(ceiling: ComputeCeiling, operators: Sequence[Cell]) -> Level:
    """Faint where nothing stands under it but the product that was timed along with it, unless all are so."""
    others = {o.compute_ceiling for o in operators if o.record != ceiling.record}
    promise = "formula" if ceiling.unit == "cpu" else "vendor"  # no vendor promises a CPU's peak
    look = "normal" if not others or ceiling.name in others else "faint"
    sustained, burst = ceiling.sustained_tflops, number(ceiling.burst_tflops)
    words = f"{ceiling.name} {UNITS.get(ceiling.unit, '')}".strip() + f" {_value(ceiling)}"
    if sustained:
        words = f"{ceiling.name} {starred(burst, ceiling.doubt)} burst, {number(sustained)} sustained"
    shares = of_vendor(ceiling)
    return Level(
        name=ceiling.name,
        value=ceiling.tflops,
        text=f"{words} · {shares} of {promise}" if shares else words,
        look="fma" if ceiling.method == "fma" else look,
        dtype=ceiling.dtype,
        sustained=sustained if sustained and sustained < SETTLED * ceiling.tflops else None,
    )


def _value(ceiling: Ceiling) -> str:
    value, unit = (ceiling.tflops, "TFLOPS") if ceiling.kind == "compute" else (ceiling.gb_per_s, "GB/s")
    return f"{starred(number(value), ceiling.doubt)} {unit}"


def _memory_text(ceiling: MemoryCeiling, name: str) -> str:
    share = ceiling.fraction_of_datasheet
    return f"{name} {_value(ceiling)}" + (f" · {percent(share)} of vendor" if share and not ceiling.doubt else "")
