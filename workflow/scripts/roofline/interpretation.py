"""interpretation.md: three questions answered in plain words, from the numbers of this run alone."""

from collections.abc import Iterable

from roofline.ceiling_table import NOTHING, UNTOLD, held_back
from roofline.records import (
    BandwidthRecord,
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
KEPT = 0.99  # of the burst: what is left above it under load counts as all of it
SLOPES = ("hbm_read", "d2d", "dram_read", "dram_copy")  # where no operator names a memory ceiling
COPIES = ("d2d", "dram_copy")
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
    told = [
        f"For {dtype}, {found.reason}, which was investigated: {cause or 'none of size, load and unit is the cause'}."
    ]
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
    told = [_slope(device, roofline, cores), _reach(cores), *_regimes(cores)]
    told += [_device_alone(cores), _share_of_tensor_peak(device, roofline, cores), *_notes(device, attention)]
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
        return f"It attains {percent(best.fraction_of_roof)} of that roof ({_cell(best)}, {duration(best.latency_s)})."
    return (
        f"It attains from {percent(worst.fraction_of_roof)} of its roof ({_cell(worst)}, {duration(worst.latency_s)}) "
        f"to {percent(best.fraction_of_roof)} ({_cell(best)}, {duration(best.latency_s)})."
    )


def _best(cores: list[Operator]) -> Operator:
    return max(cores, key=lambda cell: cell.fraction_of_roof)


def _regimes(cores: list[Operator]) -> list[str]:
    meaning = {
        "overhead": "overhead-bound (the calls set the pace)",
        "memory": "memory-bound by intensity (the calls do not set the pace)",
        "compute": "compute-bound by intensity (the calls do not set the pace)",
    }
    told = []
    for regime, words in meaning.items():
        cells = [cell for cell in cores if cell.regime == regime]
        if cells:
            batches = sorted({cell.shape["batch"] for cell in cells})
            told.append(
                f"{len(cells)} of {len(cores)} cells {_are(cells)} {words}: batch {_list(batches)}, {_span(cells)}"
            )
    judged = [cell for cell in cores if cell.predicted.sealed and cell.regime]
    right = sum(cell.predicted.sealed.regime == cell.regime for cell in judged)
    seal = f"The sealed prediction named the regime of {right} of {len(judged)} rightly." if judged else ""
    return [f"{'; '.join(told)}.", seal] if told else []


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
        f"({_cell(best)}, {duration(best.device_latency_s)})."
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
    span = f"{percent(shares[0])} to {percent(shares[-1])}" if len(shares) > 1 else percent(shares[0])
    roof = percent(max(cell.roof_tflops for cell in halves) / fp16.tflops)
    return f"In fp16 that is {span} of the measured {unit}, {judged}; at its roof it would be {roof}."


def _notes(device: str, attention: list[DecodeAttnRecord]) -> Iterable[str]:
    mine = [record for record in attention if record.device == device]
    for note in dict.fromkeys(record.note for record in mine if record.note):
        yield f"Beware: {note}; those cells time the conversion far more than the memory, under the fp32 ceiling."
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
    told = [_ratio(pairs[-1], gpu, devices, speeds)]
    if len(pairs) > 1:
        told.append(_ratio_at_small(pairs[0], gpu))
    return " ".join([*told, *_pcie(pairs[-1][0], gpu, speeds)])


def _pairs(roofline: Roofline, gpu: str) -> list[tuple[Operator, Operator]]:
    """fp32 core cells of the same implementation and shape on both, from the least to the most bytes."""

    def cells(device):
        return {
            (o.implementation, o.preset, *sorted(o.shape.items())): o
            for o in roofline.operators
            if (o.device, o.operator, o.scope, o.dtype) == (device, "decode_attention", "core", "fp32")
        }

    on_gpu, on_cpu = cells(gpu), cells("cpu")
    return sorted(((on_gpu[s], on_cpu[s]) for s in on_gpu if s in on_cpu), key=lambda pair: pair[0].bytes)


def _ratio(pair: tuple[Operator, Operator], gpu: str, devices: dict[str, DeviceRecord], speeds: dict) -> str:
    """Whether the ratio of what is attained is that of the memories: each side is held against its own slope."""
    fast, slow = pair
    attained = fast.attained_tflops / slow.attained_tflops
    text = (
        f"On the same fp32 operator (batch {fast.shape['batch']}, S {fast.shape['seq_len']}; NumPy only emulates fp16) "
        f"{gpu} ({devices[gpu].name}) attains {number(fast.attained_tflops * 1e3)} GFLOPS "
        f"and the CPU ({devices['cpu'].name}) {number(slow.attained_tflops * 1e3)}: {number(attained)} times as much."
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
    return (
        f"{text} That is less than its memory would give: the GPU reads K and V at only {gpus_share} of its bandwidth, "
        f"the CPU at {cpus_share}.{_launches(fast)}"
    )


def _launches(cell: Operator) -> str:
    """What the launches take of a GPU's time, where its own part is known."""
    if not cell.device_latency_s:
        return ""
    gap, alone = 1 - cell.device_latency_s / cell.latency_s, duration(cell.device_latency_s)
    if gap < 0.05:
        return f" Launches cost it next to nothing (the device alone takes {alone}): the kernels themselves are slow."
    return f" {percent(gap)} of the GPU's time is launch overhead: the device alone takes {alone}."


def _ratio_at_small(pair: tuple[Operator, Operator], gpu: str) -> str:
    fast, slow = pair
    ratio = fast.attained_tflops / slow.attained_tflops
    verb = f"at {number(ratio)} times the CPU's rate" if ratio >= 1 else f"slower, at {number(ratio)} of the CPU's rate"
    return f"On the smallest cell ({_cell(fast)}) {gpu} is {verb}.{_launches(fast)}"


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


def _cell(cell: Operator) -> str:
    which = f"{cell.dtype}, batch {cell.shape['batch']}, S {cell.shape['seq_len']}"
    return which if cell.implementation == "eager" else f"{which}, {cell.implementation}"


def _apart(peak: PeakFlops) -> float | None:
    """How far the burst is from the block by which its product was chosen; None where it was the only one."""
    chosen = [c.block_tflops for c in peak.candidates if c.product == peak.burst.product and c.block_tflops]
    return abs(peak.burst_tflops - chosen[0]) / chosen[0] if chosen else None


def _list(items: list) -> str:
    *others, last = map(str, items)
    return f"{', '.join(others)} and {last}" if others else last
