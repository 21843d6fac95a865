"""The records of a real card made sick in a copy: the first lines that a user reads must say so, and why."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from records_factory import load_next_to

from roofline.report.model import report
from roofline.report.pages import pages
from roofline.report.screen import summary
from roofline.table.checks.ceilings import NEAR_MAXIMUM, READS
from roofline.table.checks.surroundings import ALONE, QUIET
from roofline.table.load import load
from roofline.table.run_records import read_results

REFERENCE = Path(__file__).parents[1] / "reference/nvidia-h200"
RATES = (
    "tflops",
    "burst_tflops",
    "sustained_tflops",
    "reference_tflops",
    "gb_per_s",
    "fraction_of_vendor",
    "fraction_of_clock",
)


class Card:
    """A copy of the reference's records."""

    def __init__(self, root: Path):
        self.root = root
        for path in [*REFERENCE.glob("gpu0/**/*.json"), *REFERENCE.glob("cpu/**/*.json")]:
            copy = root / path.relative_to(REFERENCE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        self.edit("cpu/**/*.json", quiet)

    def edit(self, pattern: str, change: Callable[[dict], object]) -> None:
        for path in self.root.glob(pattern):
            content = json.loads(path.read_text())
            change(content)
            path.write_text(json.dumps(content))

    def read(self):
        """ROOFLINE.md, the summary and the table that follow from the records."""
        paths = sorted(self.root.rglob("*.json"))
        found = read_results(self.root, paths)
        table = load(found)
        run = report(table)
        return pages(run)["ROOFLINE.md"], summary(run), table


def quiet(record: dict) -> None:
    """As on a host where nothing else ran."""
    for one in parts(record, "contention"):
        one["contention"] = None


def parts(content, key: str) -> Iterator[dict]:
    """Every object in a JSON value that has a key."""
    if isinstance(content, dict):
        if key in content:
            yield content
        content = list(content.values())
    for one in content if isinstance(content, list) else ():
        yield from parts(one, key)


def scale(content: dict, factor: float, *kept: str) -> None:
    """All rates of a record, with the times that they follow from."""
    for name in set(RATES) - set(kept):
        for one in parts(content, name):
            one[name] = one[name] and one[name] * factor
    for name in ("ci95", "blocks_gb_per_s"):
        for one in parts(content, name):
            one[name] = one[name] and [value * factor for value in one[name]]
    for one in parts(content, "samples_s"):
        one["samples_s"] = [value / factor for value in one["samples_s"]]
        one["median_s"] /= factor
        one["ci95_s"] = one["ci95_s"] and [value / factor for value in one["ci95_s"]]
        one["contention"]["wall_s"] /= factor


def slow_memory(card: Card) -> None:
    card.edit("gpu0/bandwidth/hbm.json", lambda record: scale(record, 0.4))


def locked_clock(card: Card) -> None:
    def halve(record):
        scale(record, 0.5, "fraction_of_clock")
        for name in ("clock_mhz", "sm_clock_mhz", "clock_tflops"):
            for one in parts(record, name):
                one[name] = one[name] and one[name] / 2

    card.edit("gpu0/peak_flops/*.json", halve)


def other_process(card: Card) -> None:
    def join(record):
        for state in parts(record, "other_processes"):
            state["other_processes"] = 1

    card.edit("gpu0/**/*.json", join)


def busy_host(card: Card) -> None:
    def crowd(record):
        for one in parts(record, "samples_s"):
            one["contention"] = load_next_to(wall_s=1000, other_cores=2).model_dump()

    card.edit("cpu/peak_flops/fp32.json", crowd)


@pytest.mark.parametrize(
    ("harm", "device", "check"),
    [
        (slow_memory, "gpu0", READS),
        (locked_clock, "gpu0", NEAR_MAXIMUM),
        (other_process, "gpu0", ALONE),
        (busy_host, "cpu", QUIET),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_sick_card_fails_and_the_first_lines_say_why(tmp_path, harm, device, check):
    card = Card(tmp_path)
    harm(card)
    text, screen, roofline = card.read()
    (found,) = [one for one in roofline.faults if one.device == device]
    assert found.check == check
    spoilt = roofline.all_doubtful(device)
    assert spoilt == (harm not in (busy_host, other_process)), "load next to some figures spoils no others"
    head = text.split("## 1.")[0]
    assert "FAIL" in head and found.reason in head
    assert f"FAIL: {check} (" in " ".join(screen.split())


def test_the_card_itself_is_well(tmp_path):
    text, _, roofline = Card(tmp_path).read()
    assert roofline.faults == [] and "TFLOPS" in text
