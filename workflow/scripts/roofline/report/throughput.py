"""Sustained throughput: what a device's ceilings are, what to plan with, and how far runs differ."""

from roofline.analysis.table import Roofline
from roofline.core.dtypes import REGISTER_ONLY
from roofline.core.formatting import counted, flops_unit, listed, number
from roofline.core.statistics import few, half_width
from roofline.core.terms import KINDS
from roofline.records.compute import PeakFlops, PeakFlopsRecord, Sustained
from roofline.records.device import DeviceRecord
from roofline.records.operator import JobRecord
from roofline.report.answers import Answer, answer
from roofline.report.markdown import Table, filled
from roofline.report.tables import (
    WIDE,
    arithmetic_rows,
    compute_rows,
    level_rows,
    limited_by,
    main_memory_ceiling,
    memory_rows,
    promised,
)

NEAR, FAR = 0.10, 0.20  # of a ceiling's limit, or of another block of the same kernel
FALLS = 0.03  # of a burst: less under sustained load is not worth a word
TOLD = 2  # sentences of a kind that may be many; the rest is counted


def throughput(device: DeviceRecord, roofline: Roofline, records: list[JobRecord]) -> Answer:
    """What to plan with, whether the ceilings repeat within the run, and what does not fit."""
    name = device.device
    mine = [record for record in records if isinstance(record, PeakFlopsRecord) and record.device == name]
    peaks = {record.dtype: record.peak for record in mine if record.peak}
    of_few = [dtype for dtype, peak in peaks.items() if few(_samples(peak))]
    judged = {dtype: peak for dtype, peak in peaks.items() if dtype not in of_few}
    apart = {dtype: _apart(peak) for dtype, peak in judged.items()}
    noisy = [dtype for dtype in judged if (apart[dtype] or 0) > NEAR]
    beaten = [
        dtype for dtype, p in judged.items() if (p.reference_tflops or 0) > (1 + NEAR) * p.on_reference_inputs.tflops
    ]
    compute = [c for c in roofline.ceilings if c.device == name and c.kind == "compute"]
    disturbed = [c.name for c in compute if c.name in judged and c.record in roofline.disturbed]
    doubted = [dtype for dtype in dict.fromkeys(noisy + beaten) if dtype not in disturbed]
    sure = {dtype: peak for dtype, peak in judged.items() if dtype not in (*doubted, *disturbed)}
    registers = (
        {dtype: sure[name] for name, dtype in REGISTER_ONLY.items() if name in sure}
        if KINDS[device.device_kind].peaks_by == "formula"
        else {}
    )
    shares = {dtype: share for dtype, p in sure.items() if (share := _share(p, registers.get(dtype)))}
    by_registers, by_limit = "what register-only FMA reaches", "the formula" if registers else "the limit"
    beyond = {by_registers: [], by_limit: []}
    for dtype, share in shares.items():
        if share > 1 + NEAR:
            beyond[by_registers if dtype in registers else by_limit].append(dtype)
    # Of our own kernels, what is below the limit is the device's: they do nothing but multiply and add.
    short = {dtype: share for dtype, share in shares.items() if share < 1 - FAR and sure[dtype].method == "gemm"}
    left = {dtype: p.sustained_tflops / p.burst_tflops for dtype, p in sure.items() if p.sustained_tflops}
    falls = {dtype: share for dtype, share in left.items() if share < 1 - FALLS}
    noisy, beaten = ([dtype for dtype in names if dtype in doubted] for names in (noisy, beaten))
    reasons = [f"two blocks of the best kernel of {listed(noisy)} differ by more than 10 %"] if noisy else []
    reasons += [f"the reference GEMM of {listed(beaten)} beats the best one found"] if beaten else []
    doubts = [f"{dtype}: {doubt.rstrip('.')}" for dtype, peak in peaks.items() for doubt in peak.doubts]
    above = {found.operator: found.fraction_of_roof for found in roofline.above_roof if found.device == name}
    investigated = [(dtype, p.investigation) for dtype, p in peaks.items() if p.investigation]
    facts = {
        "device": name,
        "failed": roofline.all_doubtful(name),
        "peaks": peaks,
        "unit": "TFLOPS" + (", int8: TOPS" if any(flops_unit(dtype) == "TOPS" for dtype in sure) else ""),
        "plan": [f"{dtype} {number(p.sustained_tflops)}" for dtype, p in sure.items() if p.sustained_tflops],
        "load": _load([p.sustained for p in sure.values() if p.sustained]),
        "bursts": [f"{dtype} {number(p.burst_tflops)}" for dtype, p in sure.items()],
        "few": of_few,
        "doubted": doubted,
        "disturbed": disturbed,
        "doubtful": [c.record for c in roofline.ceilings if c.device == name and c.name in doubted],
        "reasons": reasons,
        "limit": by_registers if registers else by_limit,
        "short": list(short),
        "short_shares": list(short.values()),
        "libraries": sorted({sure[dtype].burst.product.library for dtype in short}),
        "beyond": {limit: above for limit, above in beyond.items() if above},
        "agree": [apart[dtype] for dtype in sure if apart[dtype] is not None],
        "alone": [dtype for dtype in sure if apart[dtype] is None],
        "falls": falls,
        "fall_reasons": sorted({_sustained_limit(p) for dtype, p in peaks.items() if dtype in falls}),
        "memory": _memory(name, roofline),
        "investigated": investigated[:TOLD],
        "doubts": doubts[:TOLD],
        "in_records": len(investigated[TOLD:]) + len(doubts[TOLD:]),
        "above": list(above.items())[:TOLD],
        "more_above": counted(len(above) - TOLD, "more operator") if len(above) > TOLD else "",
        "promise": promised(device),
    }
    return answer("throughput", facts, ceiling_tables(roofline, device)[:2])


def _load(loads: list[Sustained]) -> str:
    """For how long, and how hot: a card that is hotter holds less."""
    heat = max((load.temperature_c for load in loads if load.temperature_c is not None), default=None)
    told = [f"{max(load.seconds for load in loads):.0f} s of load"] if loads else []
    return ", ".join(told + ([f"up to {heat:.0f} °C"] if heat is not None else []))


def _samples(peak: PeakFlops) -> int:
    return len(peak.burst.latency.samples_s)


def _share(peak: PeakFlops, registers: PeakFlops | None) -> float | None:
    """Of what the hardware could do at the clock that was measured; at the promised clock where none was.

    Of a CPU's product: of what its multiply-adds in registers reached, `registers`, where they were measured. The
    formula's clock is that of an idle moment.
    """
    if registers:
        return peak.burst_tflops / registers.burst_tflops
    return peak.fraction_of_clock or peak.fraction_of_vendor


def _sustained_limit(peak: PeakFlops) -> str:
    told = peak.sustained.limited_by if peak.sustained else peak.limited_by
    return limited_by(told if peak.sustained_limited_by is None else peak.sustained_limited_by, peak.throttled)


def _apart(peak: PeakFlops) -> float | None:
    """How far the burst is from the block by which its kernel was chosen; None where there was no other block.

    On a CPU the burst may be the reference GEMM's own, which was the choosing one too: then its slower one counts.
    """
    if peak.burst_tflops == peak.reference_tflops:
        blocks = (one.tflops for one in peak.slower_remeasurements if one.product == peak.burst.product)
    else:
        blocks = (one.block_tflops for one in peak.candidates if one.product == peak.burst.product)
    other = next(blocks, None)
    return abs(peak.burst_tflops - other) / other if other else None


def _memory(device: str, roofline: Roofline) -> dict | None:
    """The memory ceiling that most operators stand under, and how sure it is."""
    there = {c.name: c for c in roofline.ceilings if c.device == device and c.kind == "memory"}
    operators = [operator for operator in roofline.operators if operator.device == device]
    ceiling = main_memory_ceiling(there.values(), operators) or next(iter(there.values()), None)
    if not ceiling:
        return None
    half = half_width(ceiling.gb_per_s, ceiling.ci95) if ceiling.ci95 else None
    return {
        "ceiling": ceiling,
        "few": few(ceiling.samples),
        "disturbed": ceiling.record in roofline.disturbed,
        "half": half,
        "wide": bool(half and half > WIDE),
    }


def ceiling_tables(roofline: Roofline, record: DeviceRecord) -> list[Table]:
    """Compute, its arithmetic, memory, and the levels that the sweep found."""
    device, promise = record.device, promised(record)
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
