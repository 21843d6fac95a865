"""The folder of a run."""

from pathlib import Path, PurePosixPath

RESULTS = Path("results")


def below_results(path: Path | str) -> str:
    """results/gpu0/prediction.json as records name it: gpu0/prediction.json."""
    return str(PurePosixPath(path).relative_to(RESULTS.as_posix()))
