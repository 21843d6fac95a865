"""interpretation.md: three questions answered in plain words, from the numbers of this run alone."""

from collections.abc import Iterable

from roofline.ceiling_table import NOTHING, UNTOLD, held_back
from roofline.records import (
    BandwidthRecord,
    Block,
    DecodeAttnRecord,
    DeviceRecord,
    Investigation,
    MemoryCeiling,
    Operator,
    PeakFlops,
    PeakFlopsRecord,
    Roofline,
)
from roofline.reporting import duration, number, percent

NEAR, FAR = 0.10, 0.20
NEARLY_ALL = 0.95  # of a time: what is left of it is not worth a word
FUSED = ("fused", "fused_graph")
PASSES = ": several kernels hand scores and weights on through memory, where one reads K and V once"
KEPT = 0.99  # of the burst: what is left above it under load counts as all of it
SLOPES = ("hbm_read", "d2d", "dram_read", "dram_copy")  # where no operator names a memory ceiling
COPIES = ("d2d", "dram_copy")
FELL = 0.02  # between two blocks of one product: less is how blocks differ
WIDE = 0.10  # an interval of the memory slope that asks for caution
USUAL_SHARE = (0.003, 0.01)
USUAL = "the 0.3-1 % that is usual when memory-bound"


def interpret(
    roofline: Roofline,
    devices: dict[str, DeviceRecord],
    peaks: list[PeakFlopsRecord],
    bandwidths: list[BandwidthRecord],
    attention: list[DecodeAttnRecord],
) -> str:
    """The three paragraphs of row A6 as Markdown."""
    names = "; ".join(f"{name}: {record.name}" for name, record in devices.items())
    paragraphs = [
        (
            "Is this roofline to be trusted?",
            [_trust(record, roofline, peaks, bandwidths) for record in devices.values()],
        ),
        ("Where does decode attention land?", [_decode(name, roofline, attention) for name in devices]),
        ("The GPU against the CPU", [_against(roofline, devices)]),
    ]
    text = [f"# What this roofline says\n\n{names}.\n"]
    for place, (title, sentences) in enumerate(paragraphs, 1):
        text.append(f"## {place}. {title}\n\n{' '.join(sentences)}\n")
    return "\n".join(text)


# ---------------------------------------------------------------- 1: trust


def _trust(
    record: DeviceRecord, roofline: Roofline, peaks: list[PeakFlopsRecord], bandwidths: list[BandwidthRecord]
) -> str:
    device = record.device
    measured = {peak.dtype: peak.peak for peak in peaks if peak.device == device and peak.peak}
    products = {dtype: peak for dtype, peak in measured.items() if peak.method == "gemm"}
    kernels = {dtype: peak for dtype, peak in measured.items() if peak.method == "fma"}
    told = [f"On {device} no matrix product was measured, so its roofline has no compute ceiling to trust."]
    if products:
        dots = "; ".join(_gemm(record, dtype, peak) for dtype, peak in products.items())
        told = [f"On {device}, {dots}.", *_verdict(products), *_sustained(products)]
    told += _kernels(record, kernels) + _doubts(measured)
    told += [_investigated(dtype, peak.investigation) for dtype, peak in measured.items() if peak.investigation]
    told += [_memory_slope(ceiling, bandwidths) for ceiling in _slopes(device, roofline)]
    return " ".join([*told, *_above_roof(device, roofline)])


def _slopes(device: str, roofline: Roofline) -> list[MemoryCeiling]:
    """The memory ceilings that operators stand under; where none does, the one that they would."""
    there = {c.name: c for c in roofline.ceilings if c.device == device and c.kind == "memory"}
    named = dict.fromkeys(o.memory_ceiling for o in roofline.operators if o.device == device)
    return [there[name] for name in named if name in there] or [there[name] for name in SLOPES if name in there][:1]


def _memory_slope(ceiling: MemoryCeiling, bandwidths: list[BandwidthRecord]) -> str:
    """How sure the line is under which operators stand."""
    text = f"The memory slope ({ceiling.name}) is {number(ceiling.gb_per_s)} GB/s"
    if ceiling.fraction_of_vendor:
        text += f", {percent(ceiling.fraction_of_vendor)} of the vendor's {number(ceiling.vendor_gb_per_s)}"
    if not ceiling.ci95:
        found = [b for record in bandwidths if record.device == ceiling.device for b in record.bandwidths]
        taken = next((len(b.latency.samples_s) for b in found if b.name == ceiling.name), None)
        samples = f"{taken} sample{'' if taken == 1 else 's'}" if taken else "its samples"
        return f"{text}, without an interval: {samples}, worth fewer than six independent ones."
    low, high = ceiling.ci95
    sure = "do not lean on it" if (high - low) / ceiling.gb_per_s > WIDE else "it is steady within this run"
    return f"{text}, with a 95 % interval from {number(low)} to {number(high)}: {sure}."


def _above_roof(device: str, roofline: Roofline) -> list[str]:
    above = [found for found in roofline.above_roof if found.device == device]
    told = dict.fromkeys(f"{found.operator} ({percent(found.fraction_of_roof)})" for found in above)
    names = _list(list(told)) if above else ""
    return [f"Above its roof: {names}; the summary says which roof or cache is the cause."] if above else []


def _gemm(record: DeviceRecord, dtype: str, peak: PeakFlops) -> str:
    """Where the dot lands under its ceiling, which is another block; and where that lies under the hardware's limit."""
    size, ceiling = peak.lab.shape["m"], number(peak.tflops)
    text = f"{dtype} GEMM at {size} reaches {number(peak.lab_tflops)} {_unit(dtype)}"
    if peak.lab_tflops >= peak.tflops:
        text += f", above its ceiling: the best of {_products(peak)} gave {number(peak.burst_tflops)} afresh"
    else:
        text += f", {percent(peak.lab_tflops / peak.tflops)} of {ceiling}, {_ceiling_words(peak)}"
    text += "" if peak.ci95 else " (too few independent samples for an interval)"
    if not _share(peak):
        return f"{text}, with no limit known to hold that against"
    return f"{text}; {_whose(peak)} {percent(_share(peak))} of {_limit(record, dtype, peak)}"


def _whose(peak: PeakFlops) -> str:
    """The clock was counted beside the burst, so that this is held against it."""
    if peak.clock_tflops and peak.burst_tflops < peak.tflops:
        return f"the burst of {number(peak.burst_tflops)} is"
    return "the ceiling is"


def _ceiling_words(peak: PeakFlops) -> str:
    if peak.burst_tflops == peak.tflops:
        return f"the best of {_products(peak)}, measured afresh on other operands"
    return "under sustained load"


def _products(peak: PeakFlops) -> str:
    count = len(peak.candidates)
    return f"{count} products tried" if count > 1 else "the one product tried"


def _kernels(record: DeviceRecord, kernels: dict[str, PeakFlops]) -> list[str]:
    """Register-only peaks: no library and no memory is in their way, so they show what the clock gives."""
    told = []
    for dtype, peak in kernels.items():
        limit = peak.clock_tflops or peak.vendor_tflops
        share = f" ({percent(_share(peak))} of {number(limit)})" if limit else ""
        told.append(f"{dtype} {number(peak.tflops)} {_unit(dtype)}{share}")
    clock = any(peak.clock_tflops for peak in kernels.values())
    whose = "; the shares are of what the measured clock allows" if clock else ""
    return [f"Multiply-adds in registers alone reach {_list(told)}{whose}."] if told else []


def _sustained(products: dict[str, PeakFlops]) -> list[str]:
    """What is left under load, and who NVML says held it back."""
    groups: dict[str, list[str]] = {}
    kept = []
    for dtype, peak in products.items():
        if not peak.sustained:
            continue
        share = peak.sustained.tflops / peak.burst_tflops
        if share >= KEPT:
            kept.append(dtype)
            continue
        words = held_back(peak.sustained.held_back_by, peak.throttled)
        groups.setdefault(words, []).append(f"{dtype} to {number(peak.sustained.tflops)} ({percent(share)})")
    causes = {NOTHING: "no throttle reason was named", UNTOLD: "the device does not tell why"}
    told = [f"{_list(those)}: {causes.get(words, f'held back by {words}')}" for words, those in groups.items()]
    text = [f"Under sustained load the bursts fall, {'; '.join(told)}."] if told else []
    return text + ([f"Sustained load leaves {_list(kept)} as in a burst."] if kept else [])


def _doubts(measured: dict[str, PeakFlops]) -> list[str]:
    found = [f"{dtype}, {doubt.rstrip('.')}" for dtype, peak in measured.items() for doubt in peak.doubts]
    return [f"What does not fit: {'; '.join(found)}."] if found else []


def _unit(dtype: str) -> str:
    return "TOPS" if dtype.startswith("int") else "TFLOPS"


def _share(peak: PeakFlops) -> float | None:
    """Of what the hardware could do at the clock that was measured; at the promised clock where none was."""
    return peak.fraction_of_clock or peak.fraction_of_vendor


def _limit(record: DeviceRecord, dtype: str, peak: PeakFlops) -> str:
    promised = record.vendor.peaks.get(dtype)
    rate = promised and promised.operations_per_clock_per_multiprocessor
    if peak.clock_tflops and rate and peak.clock_mhz:
        return (
            f"the {number(peak.clock_tflops)} that {record.hardware['multiprocessors']} multiprocessors x "
            f"{rate:.0f} operations a clock x the measured {peak.clock_mhz:.0f} MHz allow"
        )
    if peak.clock_tflops:
        return f"the {number(peak.clock_tflops)} that the measured clock allows"
    return f"the {'formula' if promised and promised.derived else 'vendor'}'s {number(peak.vendor_tflops)}"


def _verdict(measured: dict[str, PeakFlops]) -> list[str]:
    """A ceiling is trusted where it repeats, no dot is far above it, and it lies where its limit says."""
    apart = {dtype: _apart(peak) for dtype, peak in measured.items()}
    beaten = [dtype for dtype, peak in measured.items() if peak.lab_tflops > (1 + NEAR) * peak.burst_tflops]
    noisy = [dtype for dtype in measured if apart[dtype] is not None and apart[dtype] > NEAR]
    steady = [dtype for dtype in measured if dtype not in noisy and dtype not in beaten]
    places = {dtype: _place(peak) for dtype, peak in measured.items()}
    trusted = [dtype for dtype in steady if places[dtype] in ("near", "fair")]
    short = [dtype for dtype in steady if places[dtype] == "below"]
    unknown = [dtype for dtype in steady if places[dtype] == "unknown"]
    above = [dtype for dtype in measured if places[dtype] == "above"]

    told = _repeats(noisy, [dtype for dtype in steady if apart[dtype] is not None], apart)
    fell = [f"{dtype} by {percent(_fell(peak))}" for dtype, peak in measured.items() if _fell(peak) > FELL]
    if fell:
        told.append(
            f"Measured afresh, a product gave less than in the search, and another is the ceiling: {_list(fell)}."
        )
    if beaten:
        told.append(
            f"The square product of {_list(beaten)} beats the best of the products tried by more than 10 %: do not "
            f"trust {_them(beaten)} before a run on a quieter machine."
        )
    told += _places(places)
    if trusted:
        told.append(f"So the measured {_ceilings(trusted)} can be trusted.")
    if short:
        told.append(
            f"The {_ceilings(short)} {'repeats' if len(short) == 1 else 'repeat'} but {_are(short)} what the libraries "
            "reach, not what the hardware could do: a better kernel may lie above."
        )
    if above:
        told.append(f"The limit of {_list(above)} is too low, in its clock or in its rate, and says nothing.")
    if unknown:
        told.append(f"For the {_ceilings(unknown)} the repeat alone speaks.")
    return told


def _place(peak: PeakFlops) -> str:
    """Where the ceiling lies by its limit."""
    share = _share(peak)
    if not share:
        return "unknown"
    short_by = 1 - share
    if short_by < -NEAR:
        return "above"
    return "near" if short_by <= NEAR else "fair" if short_by <= FAR else "below"


def _places(places: dict[str, str]) -> list[str]:
    words = {"near": "within 10 % of", "fair": "10 to 20 % below", "below": "more than 20 % below"}
    words["above"] = "more than 10 % above"
    told = []
    for place, where in words.items():
        if there := [dtype for dtype in places if places[dtype] == place]:
            told.append(f"{_list(there)} {_are(there)} {where} {'its limit' if len(there) == 1 else 'their limits'}")
    return [f"{'; '.join(told)}."] if told else []


def _repeats(noisy: list[str], steady: list[str], apart: dict[str, float]) -> list[str]:
    told = []
    if noisy:
        told.append(
            f"Two blocks of the best product of {_list(noisy)} are {_up_to(noisy, apart)} apart, more than 10 %: do "
            f"not trust {_them(noisy)} before a run on a quieter machine."
        )
    if steady:
        whose = f" of {_list(steady)}" if noisy else ""
        within = percent(max(apart[dtype] for dtype in steady))
        told.append(f"Two blocks of the best product{whose} agree within {within}.")
    return told


def _up_to(dtypes: list[str], apart: dict[str, float]) -> str:
    worst = percent(max(apart[dtype] for dtype in dtypes))
    return worst if len(dtypes) == 1 else f"up to {worst}"


def _them(dtypes: list[str]) -> str:
    return "its ceiling" if len(dtypes) == 1 else "their ceilings"


def _ceilings(dtypes: list[str]) -> str:
    return f"{_list(dtypes)} ceiling{'' if len(dtypes) == 1 else 's'}"


def _are(items: list) -> str:
    return "is" if len(items) == 1 else "are"


def _investigated(dtype: str, found: Investigation) -> str:
    cause = next((trial.finding for trial in found.trials if trial.what == found.verdict), None)
    told = [f"For {dtype}, {found.reason}, which was investigated: {cause or 'no cause was found'}."]
    if not cause and found.ruled_out:
        told.append(f"Ruled out: {'; '.join(found.ruled_out)}.")
    if not cause and found.not_ruled_out:
        told.append(f"Not ruled out: {'; '.join(found.not_ruled_out)}.")
    return " ".join(told)


# ---------------------------------------------------------------- 2: decode attention


def _decode(device: str, roofline: Roofline, attention: list[DecodeAttnRecord]) -> str:
    cells = [o for o in roofline.operators if o.device == device and o.operator == "decode_attention"]
    cores = [cell for cell in cells if cell.scope == "core" and cell.fraction_of_roof is not None]
    if not cores:
        return f"On {device} no decode attention was placed under a roof."
    compared = _compared(cores)
    told = [_slope(device, roofline, cores), _reach(cores), *compared, *_regimes(cores)]
    told += [] if compared else [_device_alone(cores)]
    told += [_share_of_tensor_peak(device, roofline, cores), *_notes(device, attention)]
    return " ".join(sentence for sentence in told if sentence)


def _slope(device: str, roofline: Roofline, cores: list[Operator]) -> str:
    intensities = sorted({round(cell.intensity_flops_per_byte, 2) for cell in cores})
    text = f"On {device}, decode attention has an intensity of {_list([f'{i:g}' for i in intensities])} FLOP/byte"
    ridges = sorted(_ridge_points(device, roofline, cores))
    if not ridges:
        return f"{text}; for want of a memory or a compute ceiling there is no ridge point to place it by."
    slope = cores[0].memory_ceiling
    copied = ", a copy, which reading alone may exceed" if slope in COPIES else ""
    where = f"the ridge point{'' if len(ridges) == 1 else 's'} at {_list([number(ridge) for ridge in ridges])}"
    if intensities[0] >= ridges[-1]:
        return f"{text}, right of {where}: its roof is the compute ceiling."
    if intensities[-1] >= ridges[0]:
        return (
            f"{text}, on both sides of {where}: its roof is the memory slope ({slope}{copied}) or the compute ceiling."
        )
    return f"{text}, left of {where}: its roof is the memory slope ({slope}{copied})."


def _ridge_points(device: str, roofline: Roofline, cores: list[Operator]) -> set[float]:
    """Compute ceiling over memory ceiling, in FLOP/byte, of each pair that a cell stands under."""
    tflops = {c.name: c.tflops for c in roofline.ceilings if c.device == device and c.kind == "compute"}
    gb_per_s = {c.name: c.gb_per_s for c in roofline.ceilings if c.device == device and c.kind == "memory"}
    pairs = {(cell.compute_ceiling, cell.memory_ceiling) for cell in cores}
    return {tflops[c] * 1e3 / gb_per_s[m] for c, m in pairs if c in tflops and m in gb_per_s}


def _reach(cores: list[Operator]) -> str:
    best, worst = _best(cores), min(cores, key=lambda cell: cell.fraction_of_roof)
    if best is worst:
        only = f"{_cell(best, cores)}, {duration(best.latency_s)}"
        return f"It attains {percent(best.fraction_of_roof)} of that roof ({only})."
    low, high = (
        f"{percent(one.fraction_of_roof)}{of} ({_cell(one, cores)}, {duration(one.latency_s)})"
        for one, of in ((worst, " of its roof"), (best, ""))
    )
    return f"It attains from {low} to {high}."


def _best(cores: list[Operator]) -> Operator:
    return max(cores, key=lambda cell: cell.fraction_of_roof)


def _compared(cores: list[Operator]) -> list[str]:
    """Implementations side by side in one cell of the smallest batch and one of the largest, and what they save."""
    groups: dict[tuple, dict[str, Operator]] = {}
    for cell in cores:
        groups.setdefault((cell.preset, cell.dtype, *cell.shape.items()), {})[cell.implementation] = cell
    most = max(len(group) for group in groups.values())
    if most < 2:
        return []
    whole = [group for group in groups.values() if len(group) == most]
    whole.sort(key=lambda group: (_any(group).shape["batch"], _any(group).bytes))
    ends = whole[:1] if len(whole) == 1 else [whole[0], whole[-1]]
    return [sentence for group in ends for sentence in _side_by_side(group, cores, last=group is ends[-1])]


def _any(group: dict[str, Operator]) -> Operator:
    return next(iter(group.values()))


def _side_by_side(group: dict[str, Operator], cores: list[Operator], last: bool) -> Iterable[str]:
    (first, cell), *others = group.items()
    reached = [f"{first} attains {_reached(cell, ' of its roof')}", *(f"{name} {_reached(c)}" for name, c in others)]
    yield f"In {_where(cell, cores)}, {_list(reached)}."
    eager, fused = group.get("eager"), [group[name] for name in FUSED if name in group]
    if eager and fused:
        yield _saved(eager, min(fused, key=lambda cell: cell.latency_s), PASSES if last else "")
    if len(fused) == len(FUSED) and fused[1].latency_s < NEARLY_ALL * fused[0].latency_s:
        one, all_at_once = (duration(cell.latency_s) for cell in fused)
        yield f"One launch for all layers takes {all_at_once} a layer, where one for each takes {one}."


def _reached(cell: Operator, of: str = "") -> str:
    """By the caller's time, and where it is another by the device's alone."""
    by_caller = f"{percent(cell.fraction_of_roof)}{of} ({duration(cell.latency_s)}"
    if not cell.device_latency_s or not cell.device_fraction_of_roof:
        return f"{by_caller})"
    if abs(cell.device_latency_s / cell.latency_s - 1) < 1 - NEARLY_ALL:
        return f"{by_caller}, all of it the device's)"
    return f"{by_caller}; the device alone {percent(cell.device_fraction_of_roof)}, {duration(cell.device_latency_s)})"


def _saved(eager: Operator, fused: Operator, passes: str) -> str:
    """Where the time goes that one kernel saves: launches, or the device's own part."""
    saved = eager.latency_s - fused.latency_s
    if saved < (1 - NEARLY_ALL) * eager.latency_s:
        return f"There {fused.implementation} saves nothing over eager."
    text = f"{fused.implementation} is {number(eager.latency_s / fused.latency_s)} times as fast as eager"
    if not eager.device_latency_s or not fused.device_latency_s:
        return f"There {text}."
    on_device = eager.device_latency_s - fused.device_latency_s
    if on_device <= (1 - NEARLY_ALL) * saved:
        return f"There {text}: what it saves are launches ({duration(saved)})."
    if on_device >= NEARLY_ALL * saved:
        return f"There {text}: what it saves is the device's own time ({duration(saved)}){passes}."
    return (
        f"There {text}: of the {duration(saved)} that it saves, {duration(saved - on_device)} are launches and "
        f"{duration(on_device)} the device's own time{passes}."
    )


def _regimes(cores: list[Operator]) -> list[str]:
    meaning = {
        "overhead": "overhead-bound (starting sets the pace)",
        "memory": "memory-bound by intensity (starting does not set the pace)",
        "compute": "compute-bound by intensity (starting does not set the pace)",
    }
    told = []
    for regime, words in meaning.items():
        cells = [cell for cell in cores if cell.regime == regime]
        if cells:
            told.append(
                f"{len(cells)} of {len(cores)} cells {_are(cells)} {words}: {_batches(cells, cores)}, {_span(cells)}"
            )
    judged = [cell for cell in cores if cell.predicted.sealed and cell.regime]
    right = sum(cell.predicted.sealed.regime == cell.regime for cell in judged)
    seal = f"The sealed prediction named the regime of {right} of {len(judged)} rightly." if judged else ""
    return [f"{'; '.join(told)}.", seal] if told else []


def _batches(cells: list[Operator], cores: list[Operator]) -> str:
    """Their batch sizes, by implementation where there are several."""
    batches: dict[str, set] = {}
    for cell in cores:
        found = batches.setdefault(cell.implementation, set())
        found |= {cell.shape["batch"]} if cell in cells else set()
    told = {name: f"batch {_list(sorted(found))}" for name, found in batches.items() if found}
    if len({cell.implementation for cell in cores}) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{name}, {words}" for name, words in told.items())


def _span(cells: list[Operator]) -> str:
    shares = sorted(cell.fraction_of_roof for cell in cells)
    low, high = percent(shares[0]), percent(shares[-1])
    return f"at {low} of the roof" if low == high else f"at {low} to {high} of the roof"


def _device_alone(cores: list[Operator]) -> str:
    """What is left without launch gaps, where the device tells."""
    alone = [cell for cell in cores if cell.device_fraction_of_roof]
    if not alone:
        return ""
    best = max(alone, key=lambda cell: cell.device_fraction_of_roof)
    return (
        f"Without the gaps between launches the device reaches {percent(best.device_fraction_of_roof)} at best "
        f"({_cell(best, cores)}, {duration(best.device_latency_s)})."
    )


def _share_of_tensor_peak(device: str, roofline: Roofline, cores: list[Operator]) -> str:
    fp16 = next((c for c in roofline.ceilings if c.device == device and c.name == "fp16"), None)
    halves = [cell for cell in cores if cell.dtype == "fp16"]
    if not fp16 or not halves:
        return ""
    shares = sorted(cell.attained_tflops / fp16.tflops for cell in halves)
    low, high = USUAL_SHARE
    inside = sum(low <= share <= high for share in shares)
    if inside == len(shares):
        judged = f"inside {USUAL}"
    elif shares[-1] < low:
        judged = f"all below {USUAL}"
    elif shares[0] > high:
        judged = f"all above {USUAL}"
    else:
        judged = f"{inside} of {len(shares)} inside {USUAL}"
    unit = {"tensor_core": "tensor-core peak", "cuda_core": "peak of the CUDA cores"}.get(fp16.unit, "peak")
    by_implementation: dict[str, list[Operator]] = {}
    for cell in halves:
        by_implementation.setdefault(cell.implementation, []).append(cell)
    spans = {name: _span_of_peak(cells, fp16.tflops) for name, cells in by_implementation.items()}
    span = "that is " + next(iter(spans.values()))
    if len(spans) > 1:
        span = _list([f"{name} is at {words}" for name, words in spans.items()])
    roof = percent(max(cell.roof_tflops for cell in halves) / fp16.tflops)
    return f"In fp16 {span} of the measured {unit}, {judged}; at its roof it would be {roof}."


def _span_of_peak(cells: list[Operator], peak: float) -> str:
    shares = sorted(cell.attained_tflops / peak for cell in cells)
    return f"{percent(shares[0])} to {percent(shares[-1])}" if len(shares) > 1 else percent(shares[0])


def _notes(device: str, attention: list[DecodeAttnRecord]) -> Iterable[str]:
    mine = [record for record in attention if record.device == device]
    for note in dict.fromkeys(record.note for record in mine if record.note):
        yield f"Beware: {note}; those cells time the conversion beside the memory, under the fp32 ceiling."
    if any(record.weights.generated for record in mine):
        yield "The weights were generated, not those of a trained model."


# ---------------------------------------------------------------- 3: the GPU against the CPU


def _against(roofline: Roofline, devices: dict[str, DeviceRecord]) -> str:
    gpus = [name for name, record in devices.items() if record.device_kind == "gpu"]
    if not gpus or "cpu" not in devices:
        there = ", ".join(devices)
        return f"Only {there} was measured in this run; the question needs a GPU and the CPU (devices: auto or all)."
    gpu = gpus[0]
    pairs = _pairs(roofline, gpu)
    speeds = {(c.device, c.name): c.gb_per_s for c in roofline.ceilings if c.kind == "memory"}
    if not pairs:
        return f"No fp32 decode attention was measured on both {gpu} and cpu."
    told = [_ratio(pairs[-1], gpu, devices, speeds), *_by_eager(*pairs[-1], roofline)]
    if len(pairs) > 1:
        told.append(_ratio_at_small(pairs[0], gpu, [fast for fast, _ in pairs]))
    return " ".join([*told, *_pcie(pairs[-1][0], gpu, speeds)])


def _pairs(roofline: Roofline, gpu: str) -> list[tuple[Operator, Operator]]:
    """fp32 core cells of the same shape on both, each by its fastest implementation, from the least to the most
    bytes."""
    on_gpu, on_cpu = _fastest(roofline, gpu), _fastest(roofline, "cpu")
    return sorted(((on_gpu[s], on_cpu[s]) for s in on_gpu if s in on_cpu), key=lambda pair: pair[0].bytes)


def _fastest(roofline: Roofline, device: str) -> dict[tuple, Operator]:
    found: dict[tuple, Operator] = {}
    for cell in _fp32_cores(roofline, device):
        key = _shape(cell)
        if key not in found or cell.latency_s < found[key].latency_s:
            found[key] = cell
    return found


def _fp32_cores(roofline: Roofline, device: str) -> list[Operator]:
    wanted = (device, "decode_attention", "core", "fp32")
    return [o for o in roofline.operators if (o.device, o.operator, o.scope, o.dtype) == wanted]


def _shape(cell: Operator) -> tuple:
    return cell.preset, *sorted(cell.shape.items())


def _ratio(pair: tuple[Operator, Operator], gpu: str, devices: dict[str, DeviceRecord], speeds: dict) -> str:
    """Whether the ratio of what is attained is that of the memories: each side is held against its own slope."""
    fast, slow = pair
    attained = fast.attained_tflops / slow.attained_tflops
    text = (
        f"On the same fp32 operator (batch {fast.shape['batch']}, S {fast.shape['seq_len']}; NumPy only emulates fp16) "
        f"{gpu} ({devices[gpu].name}) attains {number(fast.attained_tflops * 1e3)} GFLOPS by {fast.implementation} "
        f"and the CPU ({devices['cpu'].name}) {number(slow.attained_tflops * 1e3)} by {slow.implementation}: "
        f"{number(attained)} times as much."
    )
    on_gpu, on_cpu = speeds.get((gpu, fast.memory_ceiling)), speeds.get(("cpu", slow.memory_ceiling))
    if not on_gpu or not on_cpu:
        missing = _list([name for name, speed in ((gpu, on_gpu), ("cpu", on_cpu)) if not speed])
        return f"{text} The ratio of the memory bandwidths is not known (no memory slope was measured on {missing})."
    memory = on_gpu / on_cpu
    text += (
        f" The memory bandwidths are {number(on_gpu)} ({fast.memory_ceiling}) and {number(on_cpu)} GB/s "
        f"({slow.memory_ceiling}), a ratio of {number(memory)}."
    )
    gpus_share, cpus_share = (
        percent(cell.bytes / cell.latency_s / 1e9 / own) for cell, own in ((fast, on_gpu), (slow, on_cpu))
    )
    if attained > (1 + NEAR) * memory:
        return (
            f"{text} That is more than its memory would give: the GPU reads K and V at {gpus_share} of its bandwidth, "
            f"the CPU at only {cpus_share}."
        )
    if attained >= (1 - NEAR) * memory:
        return (
            f"{text} The two ratios agree within 10 %: both read K and V at about the same share of their bandwidths, "
            f"{gpus_share} and {cpus_share}."
        )
    if fast.bytes / fast.latency_s / 1e9 >= (1 - NEAR) * on_gpu:
        return (
            f"{text} That is less than its memory would give, though the GPU reads K and V at {gpus_share} of its "
            f"bandwidth: the CPU reads them at {cpus_share} of what was measured for its own."
        )
    return (
        f"{text} That is less than its memory would give: the GPU reads K and V at only {gpus_share} of its bandwidth, "
        f"the CPU at {cpus_share}.{_launches(fast)}"
    )


def _by_eager(fast: Operator, slow: Operator, roofline: Roofline) -> list[str]:
    """What the ratio would be by plain array code, where something else is faster."""
    cells = [cell for cell in _fp32_cores(roofline, fast.device) if _shape(cell) == _shape(fast)]
    eager = next((cell for cell in cells if cell.implementation == "eager"), fast)
    if eager is fast or fast.implementation == "eager":
        return []
    ratio = number(eager.attained_tflops / slow.attained_tflops)
    return [f"By eager it would be {ratio} times as much.{_launches(eager)}"]


def _launches(cell: Operator) -> str:
    """What the launches take of a GPU's time, where its own part is known."""
    if not cell.device_latency_s:
        return ""
    gap, alone = 1 - cell.device_latency_s / cell.latency_s, duration(cell.device_latency_s)
    if gap >= 1 - NEARLY_ALL:
        return f" {percent(gap)} of the GPU's time is launch overhead: the device alone takes {alone}."
    if cell.regime == "overhead":
        return f" Launches cost it next to nothing: the device takes {alone}, of which starting is a large part."
    if cell.device_fraction_of_roof and cell.device_fraction_of_roof >= 1 - NEAR:
        return ""
    return f" Launches cost it next to nothing (the device alone takes {alone}): the kernels themselves are slow."


def _ratio_at_small(pair: tuple[Operator, Operator], gpu: str, among: list[Operator]) -> str:
    fast, slow = pair
    ratio = fast.attained_tflops / slow.attained_tflops
    verb = f"at {number(ratio)} times the CPU's rate" if ratio >= 1 else f"slower, at {number(ratio)} of the CPU's rate"
    return f"On the smallest cell ({_cell(fast, among)}) {gpu} is {verb}.{_launches(fast)}"


def _pcie(cell: Operator, gpu: str, speeds: dict) -> Iterable[str]:
    h2d = speeds.get((gpu, "h2d"))
    if h2d:
        transfer_s = cell.bytes / (h2d * 1e9)
        yield (
            "PCIe takes nothing of this, since K and V live on the device; to fetch them for each step at the measured "
            f"{number(h2d)} GB/s would take {duration(transfer_s)}, {number(transfer_s / cell.latency_s)} times the "
            "step."
        )


# ---------------------------------------------------------------- words


def _cell(cell: Operator, among: list[Operator]) -> str:
    """Which one it is among others: its preset where there are several."""
    return f"{cell.implementation}, {_where(cell, among)}"


def _where(cell: Operator, among: list[Operator]) -> str:
    preset = f"{cell.preset}, " if len({other.preset for other in among}) > 1 else ""
    return f"{preset}{cell.dtype}, batch {cell.shape['batch']}, S {cell.shape['seq_len']}"


def _apart(peak: PeakFlops) -> float | None:
    """How far the burst is from the block by which its product was chosen; None where it was the only one."""
    before = _in_search(peak, peak.burst)
    return abs(peak.burst_tflops - before) / before if before else None


def _fell(peak: PeakFlops) -> float:
    """By what share of it a product that the burst outdid fell below its block in the search, the most; 0 if none."""
    pairs = [(block.tflops, _in_search(peak, block)) for block in peak.outdone]
    return max((1 - tflops / before for tflops, before in pairs if before), default=0.0)


def _in_search(peak: PeakFlops, block: Block) -> float | None:
    """What the same product gave in the search, where it had a whole block there."""
    return next((one.block_tflops for one in peak.candidates if one.product == block.product), None)


def _list(items: list) -> str:
    *others, last = map(str, items)
    return f"{', '.join(others)} and {last}" if others else last
