"""The committed runs of real cards: the newest as a folder, the others as packed records."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from roofline.run.archive import unpack
from roofline.run.paths import RESULTS

REFERENCE = Path(__file__).parents[1] / "reference"
H200 = REFERENCE / "nvidia-h200"
THOROUGH = H200 / "thorough-records.tar.gz"
TWO_H200S = REFERENCE / "nvidia-h200-x2/run-records.tar.gz"
PACKED = {"two H200s": TWO_H200S, "thorough": THOROUGH}


@cache
def results_of(archive: Path) -> Path:
    """The results folder that an archive packs, for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="reference-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return unpack(archive, folder) / RESULTS
