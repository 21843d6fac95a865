"""All-reduces between GPUs: kernels on two stand-in cards, predictions, rows, and a slow card among three."""

from types import SimpleNamespace

import pytest
from fake_gpu import open_gpu, replace_kernels
from records_factory import bandwidth_record, device_record, hashes_of, load_next_to, results, stream, timing

from roofline.core.all_reduce_model import bound_time_s
from roofline.core.terms import UnsupportedError
from roofline.core.units import KIB
from roofline.devices.discovery import level_name, memory_levels, peer_name
from roofline.devices.gpu.all_reduce_pair import AllReducePair, Grid
from roofline.devices.gpu.nccl import NcclPair
from roofline.measure.all_reduce import measure_after_product, measure_ours
from roofline.measure.all_reduce_sealing import seal_all_reduces
from roofline.records.all_reduce_record import AfterProduct, AllReduceRecord, AllReduceTrial, TimedAllReduce
from roofline.records.bandwidth_record import Latency, Peer
from roofline.report.pages import build_pages
from roofline.report.report_model import build_report
from roofline.table.load import build_table
from roofline.table.quantities import list_quantities

SMALL = {"MultiProcessorCount": 2, "peer": True, "free_bytes": 64 * 64 * KIB}  # of sizes up to 64 KiB
LATENCY_S, WRITES_BOTH_WAYS = 0.85e-6, 736.0
AT = "2026-11-30T12:00:00+00:00"


# ---------------------------------------------------------------- on two stand-in cards


def test_each_size_uses_the_fastest_grid_and_is_checked_on_both_cards(monkeypatch):
    device = open_gpu(monkeypatch, **SMALL)
    pair = AllReducePair(device)
    ours = list(measure_ours(device, pair))
    assert [timed.size_bytes for timed in ours] == pair.sizes == [KIB, 4 * KIB, 16 * KIB, 64 * KIB]
    for timed in ours:
        times = [trial.time_s for trial in timed.trials]
        assert times == sorted(times) and {trial.kernel for trial in timed.trials} == {"one_shot", "two_shot"}
        assert 0 < timed.largest_relative_error <= 2**-8 and len(timed.timing.samples_s) >= 8
    assert measure_after_product(device, pair, ours).size_bytes == 16 * KIB


def followed_by(change):
    """A wrapper of kernels: after each launch the arguments are changed."""

    def wrap(kernel):
        does = kernel._does
        kernel._does = lambda given: (does(given), change(given))
        return kernel

    return wrap


def drop_a_sum(given):
    given.out[:8] = 0


def give_up(given):
    given.failed[0] = 1


@pytest.mark.parametrize(
    ("change", "error", "words"), [(drop_a_sum, ArithmeticError, "1024 bytes"), (give_up, TimeoutError, "gpu1")]
)
def test_a_wrong_sum_or_a_card_that_does_not_answer_ends_the_job(monkeypatch, change, error, words):
    device = open_gpu(monkeypatch, **SMALL)
    replace_kernels(monkeypatch, device, ["one_shot", "two_shot"], followed_by(change))
    with pytest.raises(error, match=words):
        next(measure_ours(device, AllReducePair(device)))


def test_cards_that_may_not_access_one_another_are_skipped_and_nothing_is_predicted(monkeypatch):
    device = open_gpu(monkeypatch, **SMALL)
    monkeypatch.setattr(device.xp.cuda.runtime, "deviceCanAccessPeer", lambda own, peer: 0)
    with pytest.raises(UnsupportedError, match="gpu1"):
        AllReducePair(device)
    skipped = link("gpu0", "gpu1").model_copy(update={"bandwidths": [], "latencies": []})
    assert seal_all_reduces(skipped, "gpu0/bandwidth/p2p_gpu1.json", "0", "gpu", AT).sizes == []


def test_cards_that_nccl_cannot_connect_are_a_reason(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no space left on /dev/shm")

    cards = SimpleNamespace(initAll=lambda numbers: [SimpleNamespace(allReduce=refuse) for _ in numbers])
    nccl = SimpleNamespace(NcclCommunicator=cards, groupStart=lambda: None, NCCL_SUM=0)
    with pytest.raises(UnsupportedError, match="/dev/shm"):
        NcclPair(nccl, AllReducePair(open_gpu(monkeypatch, **SMALL)))


def test_all_blocks_of_a_grid_fit_on_the_card_at_once(monkeypatch):
    pair = AllReducePair(open_gpu(monkeypatch, **SMALL))
    grids = pair.list_grids(64 << 20)
    assert all(grid.blocks * grid.threads <= 2 * 2048 and grid.blocks <= 2 * 16 for grid in grids)
    assert Grid("one_shot", 1, 64) in pair.list_grids(KIB)


# ---------------------------------------------------------------- what is planned and predicted


def test_two_cards_have_one_all_reduce_and_three_one_each():
    def all_reduces(*devices):
        return {device: [name for name in memory_levels(device, devices) if "all_reduce" in name] for device in devices}

    assert all_reduces("gpu0", "cpu") == {"gpu0": [], "cpu": []}
    assert all_reduces("gpu0", "gpu1") == {"gpu0": ["all_reduce_gpu1"], "gpu1": []}
    assert [*all_reduces("gpu0", "gpu1", "gpu2").values()] == [
        ["all_reduce_gpu1"],
        ["all_reduce_gpu2"],
        ["all_reduce_gpu0"],
    ]
    assert (level_name("all_reduce_gpu1"), peer_name("all_reduce_gpu1")) == ("all_reduce", "gpu1")
    assert (level_name("p2p_gpu1"), peer_name("l2")) == ("p2p", None)


def test_more_cards_are_bound_by_a_ring_or_by_a_switch_that_adds():
    assert bound_time_s(1e9, 400) == pytest.approx(2.5e-3)
    assert bound_time_s(1.07e9, 390, cards=8) < 4.00e-3  # as NVIDIA's tables have it on 8 H200s
    assert bound_time_s(8, 400, latency_s=1e-6) == 1e-6


def link(device, peer):
    path = {"link": "nvlink", "active_nvlinks": 18, "nvlink_version": "4.0", "inactive_nvlinks": []}
    both = stream(f"p2p_{peer}_write_both", WRITES_BOTH_WAYS, level="p2p", mix="write", both_ways=True)
    record = bandwidth_record(device, f"p2p_{peer}", both=both)
    load = Latency(name="load", description="made up", bytes=8, timing=timing(LATENCY_S), checked_against="made up")
    peer_of = Peer(peer=peer, uuid="", pcie_ancestor="node", **path)
    return record.model_copy(update={"peer": peer_of, "latencies": [load]})


def all_reduce_run(times_s, **load):
    """A run of pairs, with the time of 1 KiB of each; 1 MiB takes twice as long. `load` ran next to them."""
    links = [link(device, peer) for device, peer in times_s]
    run = results(*(device_record(device) for device, _ in times_s), *links)
    hashes = hashes_of(run)
    for of_link, (device, peer) in zip(links, times_s, strict=True):
        path, seal_path = f"{device}/bandwidth/p2p_{peer}.json", f"{device}/all_reduce_{peer}/prediction.json"
        run.seals[seal_path] = seal_all_reduces(of_link, path, hashes[path], "gpu", AT)
        timed = [
            TimedAllReduce(
                implementation=implementation,
                size_bytes=size,
                launches=64,
                trials=[AllReduceTrial(kernel="one_shot", blocks=1, threads=64, time_s=time_s)],
                timing=timing(time_s, contention=load_next_to(**load)),
                largest_relative_error=0.003,
            )
            for implementation, factor in (("ours", 1), ("nccl_graph", 3))
            for size, time_s in ((KIB, factor * times_s[device, peer]), (KIB * KIB, 2 * factor * times_s[device, peer]))
        ]
        record = AllReduceRecord(
            device=device,
            name=f"all_reduce_{peer}",
            peer=of_link.peer,
            all_reduces=timed,
            nccl_version="2.28.9",
            after_product=AfterProduct(
                product="made up",
                size_bytes=KIB,
                product_time_s=20e-6,
                together_time_s=23e-6,
                entry_skew_s=None,
                sm_clock_mhz=None,
            ),
            seals={f"{device}/prediction.json": hashes[f"{device}/prediction.json"], seal_path: f"of {seal_path}"},
            started_at=AT,
            elapsed_s=5.0,
        )
        run.measured.append((f"{device}/bandwidth/all_reduce_{peer}.json", record))
    return run, hashes | {path: f"of {path}" for path in run.seals}


def test_a_row_has_ours_next_to_nccl_the_bound_and_the_sealed_time():
    run, hashes = all_reduce_run({("gpu0", "gpu1"): 2e-6})
    table = build_table(run, sha256=hashes)
    (row,) = table.all_reduces
    small, large = row.sizes
    assert (small.time_s, small.nccl_graph_time_s, small.nccl_eager_time_s) == (2e-6, 6e-6, None)
    assert small.sealed_time_s == pytest.approx(1.15e-6 + LATENCY_S + KIB / 368e9)
    assert (small.bound_time_s, large.bound_time_s) == (LATENCY_S, pytest.approx(KIB * KIB / 368e9))
    assert row.after_product.size_bytes == KIB
    assert small.fraction_of_bound < large.fraction_of_bound < 1
    assert row.median_sealed_error == pytest.approx((abs(small.sealed_time_error) + abs(large.sealed_time_error)) / 2)
    assert not table.devices["gpu0"].violations
    pages = build_pages(build_report(table))
    assert all("2 us" in pages[page] and "NCCL" in pages[page] for page in ("ROOFLINE.md", "report.html"))


def test_a_prediction_that_does_not_follow_from_the_record_of_the_link_is_a_violation():
    run, hashes = all_reduce_run({("gpu0", "gpu1"): 2e-6})
    path = "gpu0/all_reduce_gpu1/prediction.json"
    run.seals[path].sizes[0].time_s *= 1.01
    assert [path in line for line in build_table(run, sha256=hashes).devices["gpu0"].violations] == [True]
    run.seals[path].sizes[0].time_s /= 1.01
    changed = hashes | {"gpu0/bandwidth/p2p_gpu1.json": "of another"}
    assert [path in line for line in build_table(run, sha256=changed).devices["gpu0"].violations] == [True]


def test_what_another_program_disturbed_is_marked_and_to_be_measured_again():
    run, hashes = all_reduce_run({("gpu0", "gpu1"): 2e-6}, other_processes=1)
    table = build_table(run, sha256=hashes)
    (row,) = table.all_reduces
    assert {size.doubt for size in row.sizes} == {"disturbed"} and row.median_sealed_error is None
    assert {size.nccl_graph_time_s for size in row.sizes} == {None}
    assert row.after_product is None
    assert table.records_to_repeat == ["gpu0/bandwidth/all_reduce_gpu1.json"]


def test_of_three_cards_a_slow_one_is_named_and_its_neighbours_are_not():
    quick, slow = 2e-6, 4e-6
    run, hashes = all_reduce_run({("gpu0", "gpu1"): quick, ("gpu1", "gpu2"): slow, ("gpu2", "gpu0"): slow})
    table = build_table(run, sha256=hashes)
    verdicts = {check.device: check.result for check in table.checks if check.check.startswith("all-reduce")}
    assert verdicts == {"gpu0": "pass", "gpu1": "pass", "gpu2": "fail"}
    rates = {row.device: row.value for row in list_quantities(table) if row.key == f"all_reduce/{KIB * KIB}"}
    assert rates["gpu0"] == rates["gpu1"] == pytest.approx(2 * rates["gpu2"])
    disturbed, of_disturbed = all_reduce_run({("gpu0", "gpu1"): quick, ("gpu1", "gpu2"): slow}, other_processes=1)
    assert not [check for check in build_table(disturbed, sha256=of_disturbed).checks if "all-reduce" in check.check]
    pair, of_pair = all_reduce_run({("gpu0", "gpu1"): slow})
    keys = [row.key for row in list_quantities(build_table(pair, sha256=of_pair)) if "all_reduce" in row.key]
    assert keys == [f"all_reduce_gpu1/{KIB}", f"all_reduce_gpu1/{KIB * KIB}"]
