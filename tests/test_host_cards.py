"""What was measured between the cards of a host, on the pages."""

from records_factory import bandwidth_record, device_record, pages_of, peak_record, report_of, stream, timing

from roofline.records.memory import Latency, Peer
from roofline.report import screen


def test_what_was_measured_between_cards_is_on_every_page():
    cards = [
        record
        for name in ("gpu0", "gpu1")
        for record in (device_record(name), peak_record(name, "bf16", 800), bandwidth_record(name, hbm_read=4000))
    ]
    share = {"level": "p2p", "mix": "copy", "vendor_gb_per_s": 450.0, "fraction_of_vendor": 397 / 450}
    both = stream("p2p_gpu1_both", 794, level="p2p", mix="copy", both_ways=True)
    record = bandwidth_record("gpu0", "p2p_gpu1", p2p_gpu1=stream("p2p_gpu1", 397, **share))
    links = {"path": "nvlink", "nvlinks": 18, "nvlink_version": "4.0", "nvlinks_down": [], "pcie_ancestor": "node"}
    between = {
        "peer": Peer(device="gpu1", uuid="", **links),
        "latencies": [Latency(name="load", what="made up", bytes=8, timing=timing(854e-9), verified="made up")],
        "bandwidths": [*record.bandwidths, both],
    }
    records = [*cards, record.model_copy(update=between)]
    shown = pages_of(*records)
    assert all("397" in shown[name] and "18 NVLinks" in shown[name] for name in ("ROOFLINE.md", "report.html"))
    assert "397" in screen.summary(report_of(*records))
