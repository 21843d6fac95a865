"""The library's packages stand in an order, and each knows only those above it; tools know the API alone."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from roofline.table import rows

CHECKOUT = Path(__file__).parents[1]
LIBRARY = CHECKOUT / "workflow" / "scripts" / "roofline"
TOOLS = sorted(path for path in CHECKOUT.glob("tools/*") if path.is_dir())
ORDER = ("core", "records", "devices", "operators", "measure", "table", "report", "plan", "run")
MODULES = {path.relative_to(LIBRARY).as_posix(): path for path in sorted(LIBRARY.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, within functions too, and those that it names to import_module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            assert node.level == 0, f"{path}: relative imports escape this test"
        elif isinstance(node, ast.JoinedStr | ast.Constant):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            first = getattr(parts[0], "value", "") if parts else ""
            if isinstance(first, str) and first.startswith("roofline."):
                yield first


def packages(path: Path) -> set[str]:
    """Our packages among what a file imports."""
    names = (name.split(".") for name in imported(path))
    return {parts[1] for parts in names if parts[0] == "roofline" and len(parts) > 1} & set(ORDER)


def test_every_package_has_its_place():
    assert {name.split("/")[0] for name in MODULES if "/" in name} == set(ORDER)
    assert [name for name in MODULES if "/" not in name] == ["__init__.py", "api.py"]


def test_a_package_imports_only_those_above_it():
    for module, path in MODULES.items():
        if "/" in module:
            place = ORDER.index(module.split("/")[0])
            assert packages(path) <= set(ORDER[: place + 1]), module


def test_the_report_reads_the_table_alone():
    """But for derived.py, which writes what is made of it into files."""
    found: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        ours = {one.removeprefix("roofline.") for one in imported(path) if one.startswith("roofline.")}
        for one in ours if name.startswith("report/") and name != "report/derived.py" else ():
            package, module = one.split(".")[0], ".".join(one.split(".")[:2])
            if package not in ("core", "table", "report") and module not in ("operators.about", "operators", package):
                found.setdefault(name, set()).add(module)
    assert found == {}


def test_every_row_is_frozen():
    kinds = [one for one in vars(rows).values() if isinstance(one, type) and issubclass(one, rows.TableRow)]
    assert len(kinds) > 20 and all(kind.model_config["frozen"] for kind in kinds)


def test_a_tool_imports_the_api_libraries_and_itself():
    for tool in TOOLS:
        of_others = {path.stem for other in TOOLS if other != tool for path in other.rglob("*.py")} - {"conftest"}
        for path in {*tool.rglob("*.py")} - {*tool.glob("tests/**/*.py")}:
            names = set(imported(path))
            assert "roofline" not in names and not packages(path), f"{path}: of the library a tool imports roofline.api"
            assert not of_others & {name.split(".")[0] for name in names}, f"{path}: another tool is imported"


def test_measuring_jobs_import_few_modules_before_their_device():
    scripts = "bandwidth, counters, device_query, instructions, measure_operator, peak_flops"
    program = f"import sys; sys.path.insert(0, {str(LIBRARY.parent)!r}); import {scripts}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-P", "-c", program], text=True).split()
    heavy = {"numpy", "cupy", "matplotlib", "jinja2", "nvmath", "llvmlite", "snakemake"}
    assert len(loaded) <= 350 and heavy.isdisjoint(loaded)
