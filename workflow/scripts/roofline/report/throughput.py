"""Sustained throughput: what a device's ceilings are, what to plan with, and how far runs differ."""

from roofline.core.dtypes import REGISTER_ONLY
from roofline.core.formatting import counted, flops_unit, number
from roofline.core.statistics import half_width
from roofline.core.terms import KINDS
from roofline.report.answers import Answer, answer
from roofline.report.markdown import Table, filled
from roofline.report.tables import (
    arithmetic_rows,
    compute_rows,
    level_rows,
    limited_by,
    main_memory_ceiling,
    memory_rows,
    promised,
)
from roofline.table.rows import ComputeCeiling, Load, Roofline

NEAR, FAR = 0.10, 0.20  # of a ceiling's limit, or of another block of the same kernel
FALLS = 0.03  # of a burst: less under sustained load is not worth a word
TOLD = 2  # sentences of a kind that may be many; the rest is counted


def throughput(name: str, roofline: Roofline) -> Answer:
    """What to plan with, whether the ceilings repeat within the run, and what does not fit."""
    device = roofline.devices[name]
    every = [c for c in roofline.ceilings if c.device == name and c.kind == "compute"]
    doubted, sure = [c for c in every if c.doubt], {c.name: c for c in every if not c.doubt}
    of_formula = KINDS[device.kind].peaks_by == "formula"
    registers = {dtype: sure[loop] for loop, dtype in REGISTER_ONLY.items() if of_formula and loop in sure}
    shares = {c.name: share for c in sure.values() if (share := _share(c, registers.get(c.name)))}
    by_registers, by_limit = "what register-only FMA reaches", "the formula" if registers else "the limit"
    beyond = {by_registers: [], by_limit: []}
    for dtype, share in shares.items():
        if share > 1 + NEAR:
            beyond[by_registers if dtype in registers else by_limit].append(dtype)
    # Of our own kernels, what is below the limit is the device's: they do nothing but multiply and add.
    short = {dtype: share for dtype, share in shares.items() if share < 1 - FAR and sure[dtype].method == "gemm"}
    held = {dtype: c for dtype, c in sure.items() if c.sustained_tflops}
    left = {dtype: c.sustained_tflops / c.burst_tflops for dtype, c in held.items()}
    falls = {dtype: share for dtype, share in left.items() if share < 1 - FALLS}
    remarks = [f"{c.name}: {remark.rstrip('.')}" for c in every for remark in c.remarks]
    above = {roofline.full_name(c): c.above_roof for c in roofline.operators if c.device == name and c.above_roof}
    investigated = [(c.name, c.investigation) for c in every if c.investigation]
    facts = {
        "device": name,
        "failed": roofline.all_doubtful(name),
        "peaks": every,
        "unit": "TFLOPS" + (", int8: TOPS" if any(flops_unit(dtype) == "TOPS" for dtype in sure) else ""),
        "plan": [f"{dtype} {number(c.sustained_tflops)}" for dtype, c in held.items()],
        "load": _load([c.load for c in sure.values() if c.load]),
        "bursts": [f"{dtype} {number(c.burst_tflops)}" for dtype, c in sure.items()],
        "doubted": [f"{c.name} ({c.doubt})" for c in doubted],
        "doubtful": [c.record for c in doubted],
        "limit": by_registers if registers else by_limit,
        "short": list(short),
        "short_shares": list(short.values()),
        "libraries": sorted({sure[dtype].library for dtype in short}),
        "beyond": {limit: above for limit, above in beyond.items() if above},
        "agree": [c.blocks_apart for c in sure.values() if c.blocks_apart is not None],
        "alone": [dtype for dtype, c in sure.items() if c.blocks_apart is None],
        "falls": falls,
        "fall_reasons": sorted({_sustained_limit(held[dtype]) for dtype in falls}),
        "memory": _memory(name, roofline),
        "investigated": investigated[:TOLD],
        "remarks": remarks[:TOLD],
        "in_records": len(investigated[TOLD:]) + len(remarks[TOLD:]),
        "above": list(above.items())[:TOLD],
        "more_above": counted(len(above) - TOLD, "more operator") if len(above) > TOLD else "",
        "promise": promised(device),
    }
    return answer("throughput", facts, ceiling_tables(roofline, name)[:2])


def _load(loads: list[Load]) -> str:
    """For how long, and how hot: a card that is hotter holds less."""
    heat = max((load.temperature_c for load in loads if load.temperature_c is not None), default=None)
    told = [f"{max(load.seconds for load in loads):.0f} s of load"] if loads else []
    return ", ".join(told + ([f"up to {heat:.0f} °C"] if heat is not None else []))


def _share(c: ComputeCeiling, registers: ComputeCeiling | None) -> float | None:
    """Of what the hardware could do at the clock that was measured; at the promised clock where none was.

    Of a CPU's product: of what its multiply-adds in registers reached, `registers`, where they were measured. The
    formula's clock is that of an idle moment.
    """
    if registers:
        return c.burst_tflops / registers.burst_tflops
    return c.fraction_of_clock or c.fraction_of_datasheet


def _sustained_limit(c: ComputeCeiling) -> str:
    return limited_by(c.limited_by if c.sustained_limited_by is None else c.sustained_limited_by, c.throttled)


def _memory(device: str, roofline: Roofline) -> dict | None:
    """The memory ceiling that most operators stand under, and how sure it is."""
    there = {c.name: c for c in roofline.ceilings if c.device == device and c.kind == "memory"}
    operators = [operator for operator in roofline.operators if operator.device == device]
    ceiling = main_memory_ceiling(there.values(), operators) or next(iter(there.values()), None)
    if not ceiling:
        return None
    return {"ceiling": ceiling, "half": half_width(ceiling.gb_per_s, ceiling.ci95) if ceiling.ci95 else None}


def ceiling_tables(roofline: Roofline, device: str) -> list[Table]:
    """Compute, its arithmetic, memory, and the levels that the sweep found."""
    promise = promised(roofline.devices[device])
    shared = ("n", "95 %, within this run")
    compute = [
        [
            f"{r.name}, TOPS" if r.unit == "TOPS" else r.name,
            *(r.measured, r.sustained, r.vendor, r.of_vendor, r.of_clock),
            *(r.samples, r.interval, r.reference, r.limited_by),
        ]
        for r in compute_rows(roofline, device)
    ]
    arithmetic = [
        [r.name, r.operands, r.sums, r.result, r.engine, r.burst, r.of_ceiling]
        for r in arithmetic_rows(roofline, device)
    ]
    memory = [
        [r.name, r.measured, r.vendor, r.of_vendor, r.samples, r.interval, r.limited_by]
        for r in memory_rows(roofline, device)
    ]
    found = [[r.name, r.gb_per_s, r.knee or "none seen", r.reported, r.series] for r in level_rows(roofline, device)]
    of_compute = ("compute, TFLOPS", "burst", "sustained", promise, f"of {promise}: burst, sustained", "of its clock")
    of_arithmetic = ("arithmetic", "operands, if unusual", "sums in", "result", "cores", "burst", "of the ceiling")
    tables = [
        filled([*of_compute, *shared, "reference GEMM", "limited by"], compute),
        filled(of_arithmetic, arithmetic, left=5),
        filled(["memory, GB/s", "measured", promise, f"of {promise}", *shared, "limited by"], memory),
        filled(["found by the sweep", "GB/s", "knee", "reported", "series"], found),
    ]
    return [one for one in tables if one.rows]
