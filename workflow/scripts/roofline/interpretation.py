"""interpretation.md: three questions answered in plain words, from the numbers of this run alone."""

from roofline.records import BandwidthRecord, DecodeAttnRecord, DeviceRecord, Operator, PeakFlopsRecord, Roofline
from roofline.reporting import duration, number, percent

NEAR, FAR = 0.10, 0.20
USUAL_SHARE = (0.003, 0.01)


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
        ("Is this roofline to be trusted?", [_trust(name, record, peaks) for name, record in devices.items()]),
        ("Where does decode attention land?", [_decode(name, roofline, attention) for name in devices]),
        ("The GPU against the CPU", [_against(roofline, devices, bandwidths)]),
    ]
    text = [f"# What this roofline says\n\n{names}.\n"]
    for place, (title, sentences) in enumerate(paragraphs, 1):
        text.append(f"## {place}. {title}\n\n{' '.join(sentence for sentence in sentences if sentence)}\n")
    return "\n".join(text)


# ---------------------------------------------------------------- 1: trust


def _trust(device: str, record: DeviceRecord, peaks: list[PeakFlopsRecord]) -> str:
    measured = [peak for peak in peaks if peak.device == device and peak.peak]
    if not measured:
        return f"On {device} no matrix product was measured, so its roofline has no compute ceiling to trust."
    dots = "; ".join(_gemm(record, peak.dtype, peak.peak) for peak in measured)
    repeats = [_apart(peak.peak.repeat_tflops, peak.peak.lab_tflops) for peak in measured]
    investigated = [_investigated(peak.dtype, peak.peak.investigation) for peak in measured if peak.peak.investigation]
    return " ".join([f"On {device}, {dots}.", _verdict(device, measured, max(repeats)), *investigated])


def _gemm(record: DeviceRecord, dtype: str, peak) -> str:
    where = f"{dtype} GEMM at {peak.size} reaches {number(peak.repeat_tflops)} TFLOPS"
    if peak.clock_tflops:
        per_clock = record.vendor.peaks[dtype].operations_per_clock_per_multiprocessor
        limit = (
            f"{percent(peak.repeat_tflops / peak.clock_tflops)} of the {number(peak.clock_tflops)} that "
            f"{record.hardware['multiprocessors']} multiprocessors x {per_clock:.0f} a clock x the measured "
            f"{peak.clock_mhz:.0f} MHz allow"
        )
    elif peak.vendor_tflops:
        limit = f"{percent(peak.repeat_tflops / peak.vendor_tflops)} of the formula's {number(peak.vendor_tflops)}"
    else:
        limit = "with no figure of the vendor's to hold it against"
    apart = _apart(peak.repeat_tflops, peak.lab_tflops)
    return f"{where}, {limit}; the first block, from other operands, gave {number(peak.lab_tflops)} ({percent(apart)} away)"


def _verdict(device: str, measured: list[PeakFlopsRecord], worst_repeat: float) -> str:
    shares = {peak.dtype: peak.peak.fraction_of_clock or peak.peak.fraction_of_vendor for peak in measured}
    near = [dtype for dtype, share in shares.items() if share and abs(1 - share) <= NEAR]
    fair = [dtype for dtype, share in shares.items() if share and NEAR < abs(1 - share) <= FAR]
    far = [dtype for dtype, share in shares.items() if share and abs(1 - share) > FAR]
    told = [
        f"{_list(dtypes)} {'is' if len(dtypes) == 1 else 'are'} {what} that limit"
        for dtypes, what in ((near, "within 10 % of"), (fair, "within 20 % of"), (far, "more than 20 % from"))
        if dtypes
    ]
    repeatable = f"The independent repeats agree within {percent(worst_repeat)}"
    if worst_repeat > NEAR:
        return (
            f"{repeatable}, which is more than 10 %: do not trust the compute ceilings of {device} before a run on a "
            f"quieter machine; {', '.join(told)}."
        )
    caution = (
        f" The ceiling of {_list(far)} is what the library reaches and not what the hardware could: "
        "a better kernel may lie above it."
        if far and any(shares[dtype] < 1 for dtype in far)
        else ""
    )
    return f"{repeatable}, and {', '.join(told) or 'no limit is known'}: the compute ceilings can be trusted.{caution}"


def _investigated(dtype: str, investigation) -> str:
    causes = {
        "size": "the size of the product was the cause",
        "sustained": "the clock had not risen yet",
        "tensor_cores": "the tensor cores were not used",
        "none": f"none of size, load or unit explains it ({'; '.join(investigation.ruled_out)})",
    }
    return f"For {dtype}, {investigation.reason}, which was investigated: {causes[investigation.verdict]}."


# ---------------------------------------------------------------- 2: decode attention


def _decode(device: str, roofline: Roofline, attention: list[DecodeAttnRecord]) -> str:
    cells = [o for o in roofline.operators if o.device == device and o.operator == "decode_attention"]
    cores = [cell for cell in cells if cell.scope == "core" and cell.fraction_of_roof is not None]
    if not cores:
        return f"On {device} no decode attention was placed."
    best = max(cores, key=lambda cell: cell.fraction_of_roof)
    worst = min(cores, key=lambda cell: cell.fraction_of_roof)
    intensities = sorted({round(cell.intensity_flops_per_byte, 2) for cell in cores})
    text = [
        f"On {device}, decode attention has an intensity of {_list([f'{i:g}' for i in intensities])} FLOP/byte, on the "
        f"memory slope ({best.memory_ceiling}).",
        f"It attains from {percent(worst.fraction_of_roof)} of that roof ({_cell(worst)}, {duration(worst.latency_s)}) "
        f"to {percent(best.fraction_of_roof)} ({_cell(best)}, {duration(best.latency_s)}).",
        _regimes(cores),
        _share_of_tensor_peak(device, roofline, cores),
    ]
    if any(record.device == device and record.note for record in attention):
        text.append("Its fp16 is emulated, so those times are NumPy's conversions and not the memory's.")
    if any(record.device == device and record.weights.generated for record in attention):
        text.append("The weights were generated; values do not change these times.")
    return " ".join(sentence for sentence in text if sentence)


def _regimes(cores: list[Operator]) -> str:
    counts = {}
    for cell in cores:
        counts.setdefault(cell.regime or "unknown", []).append(cell)
    told = [
        f"{len(cells)} of {len(cores)} cells are {regime}-bound ({_batches(cells)})" for regime, cells in counts.items()
    ]
    right = sum(cell.predicted.sealed is not None and cell.predicted.sealed.regime == cell.regime for cell in cores)
    return f"{'; '.join(told)}; the sealed prediction named the regime of {right} of {len(cores)} rightly."


def _share_of_tensor_peak(device: str, roofline: Roofline, cores: list[Operator]) -> str:
    fp16 = next((c for c in roofline.ceilings if c.device == device and c.name == "fp16"), None)
    halves = [cell for cell in cores if cell.dtype == "fp16"]
    if not fp16 or not halves:
        return ""
    shares = sorted(cell.attained_tflops / fp16.tflops for cell in halves)
    low, high = USUAL_SHARE
    usual = [share for share in shares if low <= share <= high]
    if len(usual) == len(shares):
        judged = "inside the 0.3-1 % that is usual when memory-bound"
    elif shares[-1] < low:
        judged = "all below the 0.3-1 % that is usual when memory-bound: the calls, not the memory, take the time"
    else:
        judged = f"{len(usual)} of {len(shares)} inside the 0.3-1 % that is usual when memory-bound"
    unit = "tensor-core" if fp16.unit == "tensor_core" else fp16.unit
    return f"In fp16 that is {percent(shares[0])} to {percent(shares[-1])} of the measured {unit} peak, {judged}."


# ---------------------------------------------------------------- 3: the GPU against the CPU


def _against(roofline: Roofline, devices: dict[str, DeviceRecord], bandwidths: list[BandwidthRecord]) -> str:
    gpus = [name for name, record in devices.items() if record.device_kind == "gpu"]
    if not gpus or "cpu" not in devices:
        there = ", ".join(devices)
        return f"Only {there} was measured in this run; the question needs a GPU and the CPU (devices: auto or all)."
    gpu = gpus[0]
    pairs = _pairs(roofline, gpu)
    speeds = {(b.device, b.level): b.bandwidth.gb_per_s for b in bandwidths}
    if not pairs:
        return f"No fp32 decode attention was measured on both {gpu} and cpu."
    return " ".join(
        [
            _ratio(pairs[-1], gpu, devices, speeds),
            _ratio_at_small(pairs[0], gpu) if len(pairs) > 1 else "",
            _pcie(pairs[-1][0], gpu, speeds),
        ]
    )


def _pairs(roofline: Roofline, gpu: str) -> list[tuple[Operator, Operator]]:
    """fp32 core cells of the same shape on both, from the least to the most bytes."""

    def cells(device):
        return {
            tuple(sorted(o.shape.items())): o
            for o in roofline.operators
            if (o.device, o.operator, o.scope, o.dtype) == (device, "decode_attention", "core", "fp32")
        }

    on_gpu, on_cpu = cells(gpu), cells("cpu")
    return sorted(((on_gpu[s], on_cpu[s]) for s in on_gpu if s in on_cpu), key=lambda pair: pair[0].bytes)


def _ratio(pair, gpu: str, devices, speeds) -> str:
    fast, slow = pair
    attained = fast.attained_tflops / slow.attained_tflops
    text = (
        f"On the same fp32 operator ({_cell(fast)}) {gpu} ({devices[gpu].name}) attains "
        f"{number(fast.attained_tflops * 1e3)} GFLOPS and the CPU ({devices['cpu'].name}) "
        f"{number(slow.attained_tflops * 1e3)}: {number(attained)} times as much."
    )
    on_gpu, on_cpu = speeds.get((gpu, "d2d")), speeds.get(("cpu", "dram_copy"))
    if not on_gpu or not on_cpu:
        return f"{text} The ratio of the memory bandwidths is not known (d2d or dram_copy was not measured)."
    memory = on_gpu / on_cpu
    text += f" The memory bandwidths are {number(on_gpu)} and {number(on_cpu)} GB/s, a ratio of {number(memory)}."
    if attained > 1.1 * memory:
        return (
            f"{text} The GPU gains more than its memory: the CPU attains only {percent(slow.fraction_of_roof)} of its "
            f"own memory roof, the GPU {percent(fast.fraction_of_roof)}."
        )
    if attained >= 0.9 * memory:
        return f"{text} The two ratios agree within 10 %: memory explains the difference."
    return (
        f"{text} The GPU gains less than its memory would give: it attains {percent(fast.fraction_of_roof)} of its own "
        f"memory roof, the CPU {percent(slow.fraction_of_roof)}.{_launch_gap(fast)}"
    )


def _launch_gap(cell: Operator) -> str:
    if not cell.device_latency_s:
        return ""
    gap = 1 - cell.device_latency_s / cell.latency_s
    if gap < 0.05:
        return " The launches cost it next to nothing; the array code's extra passes over memory do."
    alone = duration(cell.device_latency_s)
    return f" {percent(gap)} of the GPU's time is launch overhead: the device itself is done in {alone}."


def _ratio_at_small(pair, gpu: str) -> str:
    fast, slow = pair
    ratio = fast.attained_tflops / slow.attained_tflops
    verb = f"{number(ratio)} times the CPU's rate" if ratio >= 1 else f"slower, at {number(ratio)} of the CPU's rate"
    return f"On the smallest ({_cell(fast)}) {gpu} is {verb}.{_launch_gap(fast)}"


def _pcie(cell: Operator, gpu: str, speeds) -> str:
    h2d = speeds.get((gpu, "h2d"))
    if not h2d:
        return ""
    transfer_s = cell.bytes / (h2d * 1e9)
    return (
        f"PCIe took nothing here, since K and V live on the device; fetching them anew for each step at the measured "
        f"{number(h2d)} GB/s would take {duration(transfer_s)}, {number(transfer_s / cell.latency_s)} times the step."
    )


def _cell(cell: Operator) -> str:
    return f"{cell.dtype}, batch {cell.shape['batch']}, S {cell.shape['seq_len']}"


def _batches(cells: list[Operator]) -> str:
    batches = sorted({cell.shape["batch"] for cell in cells})
    return f"batch {_list([str(batch) for batch in batches])}"


def _apart(value: float, reference: float) -> float:
    return abs(value - reference) / reference


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
