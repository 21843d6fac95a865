"""What was measured between the cards of a host, as users are told."""

from records_factory import bandwidth_record, device_record, pages_of, peak_record, stream, timing

from roofline.records.memory import Latency, Peer


def cards(*bursts: float):
    return [
        record
        for place, burst in enumerate(bursts)
        for name in [f"gpu{place}"]
        for record in (device_record(name), peak_record(name, "bf16", burst), bandwidth_record(name, hbm_read=4000))
    ]


def link(device: str, peer: str, copies: float, path="nvlink", down=(), vendor=450.0):
    name = f"p2p_{peer}"
    share = {"level": "p2p", "mix": "copy", "vendor_gb_per_s": vendor, "fraction_of_vendor": vendor and copies / vendor}
    both = {"level": "p2p", "mix": "copy", "both_ways": True}
    record = bandwidth_record(device, name, **{name: stream(name, copies, **share)})
    latency = Latency(name="load", what="made up", bytes=8, timing=timing(854e-9), verified="made up")
    links = {"nvlinks": None, "nvlink_version": None}
    links |= {"nvlinks": 18 - len(down), "nvlink_version": "4.0"} if path == "nvlink" else {}
    reached = Peer(
        device=peer,
        uuid="",
        path=path,
        pcie_ancestor="node",
        **links,
        nvlinks_down=list(down),
    )
    streams = [*record.bandwidths, stream(f"{name}_both", 2 * copies, **both)]
    return record.model_copy(update={"peer": reached, "latencies": [latency], "bandwidths": streams})


def test_what_was_measured_between_cards_is_on_every_page():
    records = [*cards(800, 800), link("gpu0", "gpu1", 397)]
    shown = pages_of(*records)
    assert all("397 GB/s" in shown[name] and "18 NVLinks" in shown[name] for name in ("ROOFLINE.md", "report.html"))
