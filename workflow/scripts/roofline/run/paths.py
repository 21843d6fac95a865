"""The folder of a run."""

from pathlib import Path, PurePosixPath

RESULTS = Path("results")


def below_results(path: Path | str) -> str:
    """results/gpu0/prediction.json as records name it: gpu0/prediction.json."""
    return str(PurePosixPath(path).relative_to(RESULTS.as_posix()))


def seals_of(inputs) -> dict[str, str]:
    """Paths of the seals among a measuring job's inputs: the device's, the operator's, and the host's calibration."""
    return {"device": inputs.prediction, "operator": inputs.constants, "calibration": inputs.calibration}
