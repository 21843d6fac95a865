"""The folder of a run."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

RESULTS = Path("results")
AFTER_ACCEPTANCE = ("acceptance.json", "report.html", "ROOFLINE.md", "manifest.json")


def below_results(path: Path | str) -> str:
    """results/gpu0/prediction.json as records name it: gpu0/prediction.json."""
    return str(PurePosixPath(path).relative_to(RESULTS.as_posix()))


def judged(outputs: Iterable[str]) -> list[str]:
    """The outputs that acceptance looks for: it is itself made before some."""
    return [path for path in outputs if Path(path).name not in AFTER_ACCEPTANCE]
