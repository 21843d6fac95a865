"""Which files a job follows from: what makes its results stale when edited."""

import inspect
from functools import cache
from pathlib import Path

from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.operators.base import Operator
from roofline.operators.registry import own_files

PACKAGE = "roofline"
TEXTS = "about.py"  # what pages say of an operator: nothing measured follows from it
EVERY_MEASUREMENT_FOLLOWS = ("core", "records", "devices", "measure", "operators/gemm")  # the ceilings are of GEMMs


def list_measuring_files(
    script: Path, kind: DeviceKind | None = None, operators: tuple[Operator, ...] = ()
) -> list[str]:
    """Return, sorted, the files that results of a script that measures follow from.

    They are the script; the packages that measure, without code for other kinds of device (None: for all); what all
    operators share; and the folders of these operators. A user's operator may use all others, and what lies next to it.
    """
    library = script.parent / PACKAGE
    files = {script, *(library / "operators").glob("*.py")}
    folders = [library / name for name in EVERY_MEASUREMENT_FOLLOWS]
    for operator in operators:
        if operator.path:
            folders.append(library / "operators")
            files |= {*own_files(operator)}
        else:
            folders.append(library / "operators" / Path(inspect.getfile(type(operator))).parent.name)
    files = files.union(*map(_list_folder, folders))
    of_other_kinds = [library / "devices" / other for other in DEVICE_TRAITS if other != kind]
    return sorted(
        str(path)
        for path in files
        if path.name != TEXTS and not any(path.is_relative_to(folder) for folder in of_other_kinds)
    )


def list_report_files(script: Path) -> list[str]:
    """Return, sorted, the files that the table, the pages and the manifest follow from: the script and the library."""
    return sorted(map(str, {script, *_list_folder(script.parent / PACKAGE)}))


@cache  # every job of a workflow asks for the same folders
def _list_folder(folder: Path) -> frozenset[Path]:
    return frozenset(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
