import sys
from pathlib import Path
from runpy import run_path

sys.path.insert(0, str(Path(__file__).parents[1]))

of_core = run_path(str(Path(__file__).parents[3] / "tests" / "conftest.py"))
small_quiet_host = of_core["small_quiet_host"]
