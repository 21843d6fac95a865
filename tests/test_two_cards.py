"""Two cards of one host, by stand-ins: what runs at the same time, and pages that show both."""

import itertools
import json
from datetime import datetime

from workflow_run import GpuRun, new_gpu_run

SMALL = {
    "devices": "all",
    "effort": "quick",
    "peak_flops": {"dtypes": ["fp16"], "sustained_s": 0},
    "bandwidth": {"levels": ["h2d", "p2p", "all_reduce", "dram"]},
    **{operator: {"enabled": False} for operator in ("decode_attn", "rmsnorm_matmul", "row_norm")},
}


class TwoCards(GpuRun):
    environment = GpuRun.environment | {"FAKE_GPUS": "GPU-1111=NVIDIA H200,GPU-2222=NVIDIA H200"}


def test_two_cards_are_measured_at_once_and_never_one_of_them_twice(tmp_path):
    run = TwoCards(new_gpu_run(tmp_path / "run").root)
    run.edit_config(**SMALL)
    done = run.make()
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = [json.loads(line) for line in (run.root / "logs/jobs.jsonl").read_text().splitlines()]
    spans = {
        job["outputs"][0]: [datetime.fromisoformat(job[moment]) for moment in ("started_at", "ended_at")]
        for job in jobs
    }
    at_once = [
        {one, other}
        for (one, (start, end)), (other, (other_start, other_end)) in itertools.combinations(spans.items(), 2)
        if start < other_end and other_start < end
    ]
    for pair in at_once:
        assert {path.split("/")[1] for path in pair} == {"gpu0", "gpu1"}, "each card once, and a CPU alone"
        assert not all("/h2d" in path for path in pair)
        assert not any("/p2p_" in path or "/all_reduce_" in path for path in pair)
    page = (run.results / "ROOFLINE.md").read_text(encoding="utf-8")
    assert "gpu0 reaches gpu1 over " in page and "gpu1 reaches gpu0 over " in page
    (row,) = run.read("roofline.json")["all_reduces"]
    assert (row["device"], row["peer"], row["sizes"][-1]["size_bytes"]) == ("gpu0", "gpu1", 4 << 20)
    assert row["nccl_skipped_reason"] and (run.results / "all_reduce.png").exists()
    assert {"all_reduce", "p2p"} <= {path.split("/")[-1].rpartition("_")[0] for path in spans}
    assert not any(device["violations"] for device in run.read("roofline.json")["devices"].values())
