"""What was measured between the cards of a host, as users are told."""

from records_factory import bandwidth_record, device_record, page, peak_record, stream, timing, told, verified

from roofline.records.memory import Latency, Peer
from roofline.report import screen
from roofline.report.rendering import html_page


def test_what_was_measured_between_cards_is_on_every_page():
    name = "p2p_gpu1"
    share = {"level": "p2p", "mix": "copy", "vendor_gb_per_s": 450.0, "fraction_of_vendor": 397 / 450}
    both = stream(f"{name}_both", 794, level="p2p", mix="copy", both_ways=True)
    link = bandwidth_record("gpu0", name, **{name: stream(name, 397, **share)})
    links = {"path": "nvlink", "nvlinks": 18, "nvlink_version": "4.0", "nvlinks_down": []}
    update = {
        "peer": Peer(device="gpu1", uuid="", pcie_ancestor="node", **links),
        "latencies": [Latency(name="load", what="made up", bytes=8, timing=timing(854e-9), verified="made up")],
        "bandwidths": [*link.bandwidths, both],
    }
    records = [link.model_copy(update=update)]
    for gpu in ("gpu0", "gpu1"):
        records += [device_record(gpu), peak_record(gpu, "bf16", 800), bandwidth_record(gpu, hbm_read=4000)]
    assert "397 GB/s" in page("ROOFLINE", *records) and "397 GB/s" in html_page(told(*records))
    shown = screen.summary(verified(*records))
    assert f"{name}_both" in shown and "18 NVLinks" in shown
