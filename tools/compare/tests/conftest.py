from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference() -> Path:
    return Path(__file__).resolve().parents[3] / "reference" / "nvidia-h200"
