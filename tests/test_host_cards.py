"""What was measured between the cards of a host, as users are told."""

import pytest
from records_factory import (
    bandwidth_record,
    collected,
    device_record,
    page,
    peak_record,
    stream,
    timing,
    told,
)

from roofline.analysis.checks.card import PEER_COPIES
from roofline.records.memory import Latency, Peer
from roofline.report import peer_paths, roofline_ceilings, screen
from roofline.report.rendering import html_page


def card(name: str, burst: float):
    return [
        device_record(name, name="NVIDIA H200", hardware={"power_limit_w": 700.0}),
        peak_record(name, "bf16", burst),
        bandwidth_record(name, hbm_read=4000),
    ]


def cards(*bursts: float):
    return [one for place, burst in enumerate(bursts) for one in card(f"gpu{place}", burst)]


def link(device: str, peer: str, copies: float, path="nvlink", down=(), vendor=450.0):
    name = f"p2p_{peer}"
    share = {"level": "p2p", "mix": "copy", "vendor_gb_per_s": vendor, "fraction_of_vendor": vendor and copies / vendor}
    both = {"level": "p2p", "mix": "copy", "both_ways": True}
    record = bandwidth_record(device, name, **{name: stream(name, copies, **share)})
    latency = Latency(name="load", what="made up", bytes=8, timing=timing(854e-9), verified="made up")
    links = (
        {"nvlinks": 18 - len(down), "nvlink_version": "4.0"}
        if path == "nvlink"
        else dict.fromkeys(("nvlinks", "nvlink_version"))
    )
    reached = Peer(device=peer, uuid="", path=path, pcie_ancestor="node", **links, nvlinks_down=list(down))
    streams = [*record.bandwidths, stream(f"{name}_both", 2 * copies, **both)]
    return record.model_copy(update={"peer": reached, "latencies": [latency], "bandwidths": streams})


def test_what_was_measured_between_cards_is_told_with_its_path_and_what_is_summed():
    records = [*cards(800, 800), link("gpu0", "gpu1", 397)]
    said = (
        "gpu0 reaches gpu1 over 18 NVLinks (version 4.0): copies 397 GB/s one way, 794 both ways (both ways: at once, "
        "the sum of the two); 8 bytes take 854 ns by a load in a kernel."
    )
    assert peer_paths.sentences(collected(*records).roofline, "gpu0") == [said]
    markdown = page("ROOFLINE", *records)
    assert said in markdown and said in html_page(told(*records))
    assert "| other GPUs | - | 397 GB/s | p2p_gpu1 |" in markdown
    shown = screen.summary(collected(*records).roofline)
    assert "p2p_gpu1_both" in shown and "over 18 NVLinks" in shown
    ceilings = [one for one in collected(*records).roofline.ceilings if one.device == "gpu0"]
    assert list(roofline_ceilings.notes(ceilings, [])) == [
        "Copies to 1 other GPU: 397 GB/s.",
        "Measured and not drawn: bf16 800 TFLOPS; hbm_read 4000 GB/s.",
    ]


def test_peers_that_are_reached_alike_share_a_sentence():
    records = [*cards(800, 800, 800, 800), *(link("gpu0", f"gpu{n}", 396 + n) for n in (1, 2))]
    records.append(link("gpu0", "gpu3", 390, down=(3, 7)))
    first, second = peer_paths.sentences(collected(*records).roofline, "gpu0")
    assert "over 16 NVLinks (version 4.0), links 3 and 7 inactive" in first
    assert "gpu0 reaches gpu1 and gpu2 over 18 NVLinks" in second and "copies 397 to 398 GB/s" in second


@pytest.mark.parametrize(
    ("fields", "result", "words"),
    [
        ({"copies": 397}, "pass", "p2p_gpu1 88 % of 450 GB/s"),
        ({"copies": 200, "down": (3,)}, "fail", "p2p_gpu1 44 % of 450 GB/s, link 3 inactive"),
        ({"copies": 25, "path": "pcie", "vendor": None}, "not_applicable", "no peer is reached over NVLink"),
    ],
)
def test_slow_copies_over_nvlink_fail(fields, result, words):
    records = [*cards(800, 800), link("gpu0", "gpu1", **fields)]
    (found,) = [one for one in collected(*records).roofline.checks if one.check == PEER_COPIES]
    assert (found.device, found.result) == ("gpu0", result) and words in found.reason
