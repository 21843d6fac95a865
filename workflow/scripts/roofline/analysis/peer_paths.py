"""What was measured between the GPUs of a host, in words, and whether copies over NVLink are fast enough."""

import itertools
from collections.abc import Iterable, Sequence

from roofline.analysis.table import Criterion, MemoryCeiling, PeerPath, Roofline
from roofline.core.formatting import counted, duration, listed, number, percent

# Of the rate of the active NVLinks in one direction. azurehpc-health-checks asks for copies of 238 of 300 GB/s between
# A100s and of 335 of 450 GB/s between H100s or H200s: 79 and 74 %. Two H200s copied at 88 %.
COPIES_OF_NVLINKS = 0.74
COPIES = f"peer copies at {percent(COPIES_OF_NVLINKS)} or more of what the active NVLinks carry"


def sentences(roofline: Roofline, device: str) -> list[str]:
    """Of a device, one for the peers that it reaches alike: the path, the rates of copies and kernels, and 8 bytes."""
    mine = sorted((one for one in roofline.peers if one.device == device), key=_path)
    return [_sentence(device, list(alike), roofline) for _, alike in itertools.groupby(mine, key=_path)]


def _path(one: PeerPath) -> str:
    """Over 18 NVLinks (version 4.0); over 17 ... , link 3 inactive; over PCIe."""
    if one.path is None:
        return "over a path that NVML does not tell"
    if one.path == "pcie":
        return "over PCIe"
    version = f" (version {one.nvlink_version})" if one.nvlink_version else ""
    return f"over {counted(one.nvlinks or 0, 'NVLink')}{version}{_down(one)}"


def _down(one: PeerPath) -> str:
    plural = "s" if len(one.nvlinks_down) > 1 else ""
    return f", link{plural} {listed(map(str, one.nvlinks_down))} inactive" if one.nvlinks_down else ""


def _sentence(device: str, paths: Sequence[PeerPath], roofline: Roofline) -> str:
    rates = {(c.device, c.name): c.gb_per_s for c in roofline.ceilings if isinstance(c, MemoryCeiling)}

    def rate(way: str) -> str:
        return _span(rates[found] for one in paths if (found := (device, f"p2p_{one.peer}{way}")) in rates)

    ways = {"copies": "", "reads by kernels": "_read", "writes by kernels": "_write"}
    told = [
        f"{what} {one} GB/s one way, {both} both ways" if (both := rate(f"{way}_both")) else f"{what} {one} GB/s"
        for what, way in ways.items()
        if (one := rate(way))
    ]
    said = f"{device} reaches {listed(one.peer for one in paths)} {_path(paths[0])}: {', '.join(told)}"
    small = [_latency(paths, name, words) for name, words in (("load", "a load in a kernel"), ("copy", "a copy"))]
    summed = " (both ways: at once, the sum of the two)" if any("both ways" in one for one in told) else ""
    return f"{said}{summed}" + (f"; 8 bytes take {', '.join(filter(None, small))}." if any(small) else ".")


def _latency(paths: Iterable[PeerPath], name: str, words: str) -> str:
    known = sorted(one.latencies_s[name] for one in paths if name in one.latencies_s)
    return f"{' to '.join(dict.fromkeys(map(duration, [known[0], known[-1]])))} by {words}" if known else ""


def _span(values: Iterable[float]) -> str:
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(map(number, [ordered[0], ordered[-1]]))) if ordered else ""


def criterion(device: str, roofline: Roofline) -> list[Criterion]:
    """Of the copies of a device in one direction, over NVLink. None where nothing was measured between GPUs."""
    over = {f"p2p_{one.peer}": one for one in roofline.peers if one.device == device}
    if not over:
        return []
    copies = [c for c in roofline.ceilings if c.device == device and c.name in over and c.kind == "memory"]
    known = [c for c in copies if c.fraction_of_vendor and over[c.name].path == "nvlink"]
    low = [c for c in known if c.fraction_of_vendor < COPIES_OF_NVLINKS]
    told = [
        f"{c.name} {percent(c.fraction_of_vendor)} of {number(c.vendor_gb_per_s)} GB/s{_down(over[c.name])}"
        for c in low or known
    ]
    result = "fail" if low else "pass" if known else "not_applicable"
    reason = "; ".join(told) or "no peer is reached over NVLink of a known rate"
    return [Criterion(device=device, criterion=COPIES, result=result, reason=reason)]
