"""What `make` measures again: records in which a check failed by what may be over by now."""

import pytest

from roofline.analysis.table import Acceptance
from roofline.records.base import write
from roofline.records.check import CheckResult
from roofline.run import again

ASKED = ["cpu/a", "cpu/b", "cpu/gone"]


def result(what: str, *records: str) -> CheckResult:
    return CheckResult(device="cpu", check="no other load", result=what, reason="made up", records=list(records))


@pytest.mark.parametrize(
    ("checks", "arguments", "forced"),
    [
        ([result("fail", "cpu/a.json", "cpu/b.json"), result("fail", "cpu/a.json")], [], ["cpu/a.json", "cpu/b.json"]),
        ([result("pass", "cpu/a.json"), result("fail")], [], []),
        ([result("fail", "cpu/gone.json")], [], []),
        ([result("fail", "cpu/not_asked.json")], [], []),
        ([result("fail", "cpu/a.json")], ["--forcerun", "all"], []),
        ([result("fail", "cpu/a.json")], ["--directory", "elsewhere"], []),
    ],
)
def test_records_of_failed_checks_are_forced(tmp_path, checks, arguments, forced):
    (tmp_path / "cpu").mkdir()
    for name in ("a", "b", "not_asked"):
        (tmp_path / f"cpu/{name}.json").touch()
    write(Acceptance(checks=checks), tmp_path / "acceptance.json")
    options = again.options(tmp_path, arguments, lambda: ASKED)
    assert options == (["--forcerun", *(str(tmp_path / path) for path in forced)] if forced else [])
    told = "".join(again.told(options))
    assert bool(told) == bool(forced) and all(path in told for path in forced)


def test_without_a_run_nothing_is_forced(tmp_path):
    assert again.options(tmp_path, [], lambda: ASKED) == []
