"""A finished run of a few small files, made by hand: real records, invented moments."""

from __future__ import annotations

import json
from pathlib import Path

from roofline.analysis.collect import place_files
from roofline.records import DecodeAttnRecord, Weights
from roofline.records.base import Record, write
from roofline.records.compute import PeakFlopsRecord, Search
from roofline.records.device import DeviceRecord, VendorFigures
from roofline.records.files import file_sha256
from roofline.records.memory import Bandwidth, BandwidthRecord, GridTrial
from roofline.records.prediction import PredictionRecord
from roofline.records.roofline import Roofline
from roofline.records.timing import Timing
from roofline.run.manifest import Manifest, Sources, make_manifest

DAY = "2026-11-05T"
SEALED, MEASURED, MADE = f"{DAY}12:00:10+00:00", f"{DAY}12:00:20+00:00", f"{DAY}12:01:40+00:00"
CHECKPOINT = "results/checkpoints/minigpt.safetensors"
SETTINGS = {"operations": [], "plot": {"dpi": 80}, "model": {"checkpoint": None}}
SOURCES = Sources(commit="c0ffee", dirty=False, changed_files=[], known_from="git", reason=None)
VENDOR = VendorFigures(
    match="formula",
    entry=None,
    reason="made up",
    boost_clock_mhz=None,
    tensor_clock_mhz=None,
    rate_class=None,
    l2_bytes=None,
    power_limit_w=None,
    peaks={},
    absent={},
    bandwidth=None,
)
BANDWIDTH = Bandwidth(
    name="dram_copy",
    level="dram",
    mix="copy",
    counted="bytes read plus bytes written",
    bytes=2 << 24,
    gb_per_s=(2 << 24) / 1e-3 / 1e9,
    ci95=None,
    vendor_gb_per_s=None,
    fraction_of_vendor=None,
    threads=2,
    grid="2 threads",
    search=Search(offered=1, tried=1, refused=[]),
    trials=[GridTrial(grid="2 threads", gb_per_s=(2 << 24) / 1e-3 / 1e9)],
    blocks_gb_per_s=[(2 << 24) / 1e-3 / 1e9],
    sm_clock_mhz=None,
    bytes_per_clock_per_multiprocessor=None,
    held_back_by=[],
    throttled=None,
    latency=Timing(
        method="made up",
        warmup=1,
        requested=1,
        stopped_by="iterations",
        samples_s=[1e-3],
        median_s=1e-3,
        ci95_s=None,
    ),
    states=[],
    verified="made up",
)


def device_record(device: str = "cpu", **fields) -> DeviceRecord:
    kind = device.rstrip("0123456789")
    known = {
        "device": device,
        "device_kind": kind,
        "name": {"cpu": "A CPU (8 cores)", "gpu": "NVIDIA H200"}[kind],
        "uuid": f"uuid-of-{device}",
        "memory_total_bytes": 1 << 34,
        "memory_free_bytes": 1 << 33,
        "last_level_cache_bytes": 1 << 25,
        "hardware": {},
        "software": {"numpy": "2.4.6"},
        "vendor": VENDOR,
        "host": {"os": "Linux", "cpu": "A CPU (8 cores)"},
        "queried_at": f"{DAY}12:00:05+00:00",
    }
    return DeviceRecord(**known | fields)


class SmallRun:
    """A working directory with the results of one device, and logs."""

    def __init__(self, root: Path, device: str = "cpu", weights: str = CHECKPOINT):
        self.root, self.device = root, device
        self.folder = f"results/{device}"
        self.paths: list[str] = []
        self.jobs: dict[str, dict] = {}
        self.weights = root / weights  # an absolute path stays as it is
        self.weights.parent.mkdir(parents=True, exist_ok=True)
        self.weights.write_bytes(b"weights of a model")
        self.write(device_record(device), "device_query.json", 0, 6)
        self.seal(SEALED)
        self.measure(weights)
        self.write(self.roofline(), "../roofline.json", 30, 31)
        self.text("results/interpretation.md", "# What this roofline says\n", 32, 33)
        self.job(CHECKPOINT, "checkpoint", 0, 2)

    def seal(self, sealed_at: str) -> None:
        sealed = PredictionRecord(
            device=self.device,
            device_kind="cpu" if self.device == "cpu" else "gpu",
            sealed_at=sealed_at,
            device_record_sha256=self.sha256(f"{self.folder}/device_query.json"),
            model_source_sha256="0" * 64,
            ceilings=[],
            constants={},
            constant_sources={},
        )
        self.write(sealed, "prediction.json", 8, 10)

    def measure(self, weights: str, started_at: str = MEASURED) -> None:
        """Write the measuring jobs' records, each under the seal as it now is."""
        seal = self.sha256(f"{self.folder}/prediction.json")
        every = {"device": self.device, "seal_sha256": seal, "started_at": started_at, "elapsed_s": 1.5}
        used = Weights(
            path=weights,
            sha256=file_sha256(self.weights),
            generated=weights == CHECKPOINT,
            naming="minigpt",
            hidden_state="seeded normal numbers",
        )
        peak = PeakFlopsRecord(dtype="fp32", skipped="left out of a small run", peak=None, **every)
        memory = BandwidthRecord(level="dram", bandwidths=[BANDWIDTH], **every)
        attention = DecodeAttnRecord(
            preset="minigpt", seq_len=16, dtype="fp32", weights=used, note=None, measurements=[], **every
        )
        self.write(peak, "peak_flops/fp32.json", 20, 22)
        self.write(memory, "bandwidth/dram.json", 22, 24)
        self.write(attention, "decode_attn/minigpt/S16_fp32.json", 24, 28)

    def roofline(self) -> Roofline:
        paths = [path for path in self.paths if "prediction" not in path]
        folders = ("device_query", "peak_flops", "bandwidth", "decode_attn")
        of_rule = [[self.root / path for path in paths if folder in path] for folder in folders]
        return place_files(*of_rule, SETTINGS["operations"], self.root / "results")

    def write(self, record: Record, name: str, start_s: int, end_s: int) -> str:
        path = (Path(self.folder) / name).as_posix().replace(f"{self.folder}/../", "results/")
        write(record, self.root / path)
        return self._made(path, start_s, end_s)

    def text(self, path: str, text: str, start_s: int, end_s: int) -> str:
        (self.root / path).write_text(text)
        return self._made(path, start_s, end_s)

    def _made(self, path: str, start_s: int, end_s: int) -> str:
        self.paths = list(dict.fromkeys([*self.paths, path]))
        rule = path.split("/")[2] if path.count("/") > 2 else Path(path).stem
        self.job(path, rule, start_s, end_s)
        log = self.root / self.jobs[path]["log"]
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("made by hand\n")
        return path

    def job(self, path: str, rule: str, start_s: int, end_s: int, log: str | None = None) -> None:
        """Have a job's start and end be seconds after noon."""
        self.jobs[path] = {
            "rule": rule,
            "params": ["'fp32'", "100"],
            "started_at": f"{DAY}12:00:{start_s:02}+00:00",
            "ended_at": f"{DAY}12:00:{end_s:02}+00:00",
            "log": log or path.replace("results/", "logs/", 1).rpartition(".")[0] + ".log",
        }

    def sha256(self, path: str) -> str:
        return file_sha256(self.root / path)

    def manifest(self, **fields) -> Manifest:
        known = {
            "settings": SETTINGS,
            "usd_per_hour": None,
            "run_started_at": f"{DAY}11:59:58+00:00",
            "created_at": MADE,
            "sources": SOURCES,
        }
        return make_manifest(self.root, self.paths, lambda path: self.jobs.get(path, {}), **known | fields)

    def write_manifest(self, **fields) -> Manifest:
        manifest = self.manifest(**fields)
        write(manifest, self.root / "results/manifest.json")
        return manifest

    def change(self, path: str, **fields) -> None:
        """Change fields of a JSON file, as someone who tampers would."""
        file = self.root / path
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))
