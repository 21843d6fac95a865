import sys
from importlib import util
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
sys.path.insert(0, str(CHECKOUT / "tools" / "health"))

spec = util.spec_from_file_location("conftest_of_tests", CHECKOUT / "tests" / "conftest.py")
of_tests = util.module_from_spec(spec)
spec.loader.exec_module(of_tests)
small_quiet_host = of_tests.small_quiet_host  # a fixture
