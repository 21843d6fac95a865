import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@pytest.fixture(scope="session")
def reference() -> Path:
    return Path(__file__).resolve().parents[3] / "reference" / "nvidia-h200"
