"""What was measured between the GPUs of a host, in words."""

import itertools
from collections.abc import Iterable, Sequence

from roofline.core.formatting import counted, duration, listed, number
from roofline.table.rows import MemoryCeiling, PeerPath, Roofline


def sentences(roofline: Roofline, device: str) -> list[str]:
    """Of a device, one for the peers that it reaches alike: the path, the rates of copies and kernels, and 8 bytes."""
    mine = sorted((one for one in roofline.peers if one.device == device), key=_path)
    return [_sentence(device, list(alike), roofline) for _, alike in itertools.groupby(mine, key=_path)]


def _path(one: PeerPath) -> str:
    """Over 18 NVLinks (version 4.0); over 17 ... , link 3 inactive; over PCIe."""
    if one.path is None:
        return "over a path that NVML does not report"
    if one.path == "pcie":
        return "over PCIe"
    version = f" (version {one.nvlink_version})" if one.nvlink_version else ""
    return f"over {counted(one.nvlinks or 0, 'NVLink')}{version}{_inactive(one)}"


def _inactive(one: PeerPath) -> str:
    """The end of a sentence on the path; empty where all links are active."""
    plural = "s" if len(one.nvlinks_down) > 1 else ""
    return f", link{plural} {listed(map(str, one.nvlinks_down))} inactive" if one.nvlinks_down else ""


def _sentence(device: str, paths: Sequence[PeerPath], roofline: Roofline) -> str:
    records = {one.record for one in paths}
    between = [c for c in roofline.ceilings if isinstance(c, MemoryCeiling) and c.record in records]

    def rate(mix: str, both_ways: bool) -> str:
        return _span(c.gb_per_s for c in between if (c.mix, c.both_ways) == (mix, both_ways))

    ways = {"copies": "copy", "reads by kernels": "read", "writes by kernels": "write"}
    rates = [
        f"{what} {one} GB/s one way, {both} both ways" if (both := rate(mix, True)) else f"{what} {one} GB/s"
        for what, mix in ways.items()
        if (one := rate(mix, False))
    ]
    said = f"{device} reaches {listed(one.peer for one in paths)} {_path(paths[0])}: {', '.join(rates)}"
    small = [_latency(paths, name, words) for name, words in (("load", "a load in a kernel"), ("copy", "a copy"))]
    summed = " (both ways: at once, the sum of the two)" if any("both ways" in one for one in rates) else ""
    return f"{said}{summed}" + (f"; 8 bytes take {', '.join(filter(None, small))}." if any(small) else ".")


def _latency(paths: Iterable[PeerPath], name: str, words: str) -> str:
    known = sorted(one.latencies_s[name] for one in paths if name in one.latencies_s)
    return f"{' to '.join(dict.fromkeys(map(duration, [known[0], known[-1]])))} by {words}" if known else ""


def _span(values: Iterable[float]) -> str:
    ordered = sorted(values)
    return " to ".join(dict.fromkeys(map(number, [ordered[0], ordered[-1]]))) if ordered else ""
