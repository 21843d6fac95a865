from pathlib import Path
from runpy import run_path

small_quiet_host = run_path(str(Path(__file__).parents[3] / "tests" / "conftest.py"))["small_quiet_host"]  # a fixture
