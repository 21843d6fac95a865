"""Made-up nodes: the records of a committed run, as if other cards had been measured with small differences."""

import json
import random
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from roofline.run.archive import unpacked

REFERENCE = Path(__file__).parents[3] / "reference" / "nvidia-h200"
SPREAD = 0.002
RATES = ("burst_tflops", "tflops", "sustained_tflops", "gb_per_s", "warp_instructions_per_s")


@cache
def records() -> dict[str, str]:
    names = ("roofline.json", "manifest.json", "gpu0/device_query.json", "cpu/device_query.json")
    with unpacked(REFERENCE) as root:
        return {name: (root / "results" / name).read_text() for name in names}


def results(folder: Path, name: str, /, gpus: int = 1, slow: Mapping[str, float] = {}, **changes) -> Path:
    """A results folder of a node with so many copies of the GPU, in which rates of the first are multiplied: by the
    name of a ceiling or of its level (hbm). `changes` are of the devices, such as `name`, and `effort` of the run."""
    parts, chance = records(), random.Random(name)
    table, manifest = json.loads(parts["roofline.json"]), json.loads(parts["manifest.json"])
    at = folder / name
    shutil.rmtree(at, ignore_errors=True)
    manifest["outputs"] = []
    manifest["config"]["effort"] = changes.pop("effort", manifest["config"]["effort"])
    table["checks"], table["operators"] = [], []  # of which a card is not judged
    own, table["devices"] = table["devices"], {"cpu": table["devices"]["cpu"]}
    for kind in ("ceilings", "instructions"):
        rows = [one for one in table[kind] if one["device"] == "gpu0"]
        table[kind] = [scaled(one, f"gpu{i}", chance, {} if i else slow) for i in range(gpus) for one in rows]
    for i in range(gpus):
        device = json.loads(parts["gpu0/device_query.json"])
        device |= {"device": f"gpu{i}", "uuid": f"GPU-{name}-{i}", **changes}
        table["devices"][f"gpu{i}"] = own["gpu0"] | {"record": f"gpu{i}/device_query.json"}
        written(at / f"gpu{i}/device_query.json", device)
    written(at / "cpu/device_query.json", json.loads(parts["cpu/device_query.json"]))
    written(at / "roofline.json", table)
    written(at / "manifest.json", manifest)
    return at


def scaled(row: dict, device: str, chance: random.Random, slow: Mapping[str, float]) -> dict:
    name = row.get("name", "issue")
    for rate in RATES:
        if row.get(rate):
            factor = slow.get(name, slow.get(row.get("level"), 1.0))
            row = row | {rate: row[rate] * factor * (1 + SPREAD * chance.uniform(-1, 1))}
    return row | {"device": device}


def written(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
