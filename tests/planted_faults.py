"""Plants faults in the library, one at a time, and counts those that the fast tests find.

    .venv/bin/python tests/planted_faults.py
    .venv/bin/python tests/planted_faults.py --seed 2 --each 1 --packages core table

By the seed, each package gets eight faults of four kinds in turn: a flipped sign, a changed factor, a changed
comparison, two swapped fields. Each is planted in a temporary clone of the last commit, where the tests that are
neither slow nor for a GPU run until the first failure. A fault that changes nothing for a user is named by its place,
as it was printed (--nothing core/regimes.py:41:12); the next one of the seed replaces it.

The exit status is 0 if at least nine of ten faults were found. It takes about as long as 40 runs of the fast tests.
"""

import argparse
import ast
import itertools
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[1]
LIBRARY = Path("workflow/scripts/roofline")
PACKAGES = ("core", "devices", "operators", "measure", "table")
KINDS = ("sign", "factor", "comparison", "swap")
SIGNS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+")}
DIRECTIONS = {ast.Lt: ("<", ">"), ast.Gt: (">", "<"), ast.LtE: ("<=", ">="), ast.GtE: (">=", "<=")}
COMPARISONS = DIRECTIONS | {ast.Eq: ("==", "!="), ast.NotEq: ("!=", "==")}
Edit = tuple[int, int, int, str]  # a line, the first of its bytes to replace, the one after the last, and the new text


class Fault(NamedTuple):
    path: Path  # below the library
    kind: str
    edits: tuple[Edit, ...]
    what: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.edits[0][0]}:{self.edits[0][1]}"

    def planted(self, source: str) -> str:
        lines = source.encode().splitlines(keepends=True)
        for line, begin, end, text in sorted(self.edits, reverse=True):
            lines[line - 1] = lines[line - 1][:begin] + text.encode() + lines[line - 1][end:]
        return b"".join(lines).decode()


def faults_of(path: Path) -> Iterator[Fault]:
    """All that can be planted in a file."""
    source = (CHECKOUT / LIBRARY / path).read_text(encoding="utf-8")
    lines = source.encode().splitlines()

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> tuple[Edit, ...]:
        """The operator between two operands on one line."""
        if left.end_lineno != right.lineno:
            return ()
        at = lines[right.lineno - 1].find(old.encode(), left.end_col_offset, right.col_offset)
        return ((right.lineno, at, at + len(old), new),) if at >= 0 else ()

    def of_node(node: ast.AST) -> Iterator[tuple[str, tuple[Edit, ...], str]]:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield "sign", ((node.lineno, node.col_offset, node.col_offset + 1, ""),), "no -"
        if isinstance(node, ast.BinOp):
            numbers = [one for one in (node.left, node.right) if is_number(one)]
            if isinstance(node.op, ast.Sub) or (isinstance(node.op, ast.Add) and numbers):  # else it may join texts
                old, new = SIGNS[type(node.op)]
                yield "sign", between(node.left, node.right, old, new), f"{old} to {new}"
            for one in numbers if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv) else ():
                new = repr(one.value * (2 if isinstance(one.value, int) else 1.5))
                yield "factor", ((one.lineno, one.col_offset, one.end_col_offset, new),), f"{one.value} to {new}"
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS and len(node.ops) == 1:
            old, new = COMPARISONS[type(node.ops[0])]
            yield "comparison", between(node.left, node.comparators[0], old, new), f"{old} to {new}"
        if isinstance(node, ast.FunctionDef):
            called = {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
            fields = [one for one in ast.walk(node) if isinstance(one, ast.Attribute) and id(one) not in called]
            for one, other in itertools.combinations(fields, 2):
                if ast.unparse(one.value) == ast.unparse(other.value) and one.attr != other.attr:
                    yield "swap", (renamed(one, other.attr), renamed(other, one.attr)), f"{one.attr}, {other.attr}"

    for node in ast.walk(ast.parse(source)):
        yield from (Fault(path, kind, edits, what) for kind, edits, what in of_node(node) if edits)


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value != 0


def renamed(node: ast.Attribute, name: str) -> Edit:
    return node.end_lineno, node.end_col_offset - len(node.attr), node.end_col_offset, name


def chosen(package: str, seed: int, count: int, nothing: list[str]) -> list[Fault]:
    files = sorted((CHECKOUT / LIBRARY / package).rglob("*.py"))
    every = [fault for file in files for fault in faults_of(file.relative_to(CHECKOUT / LIBRARY))]
    draw = random.Random(f"{seed} {package}")
    of_kinds = [[fault for fault in every if fault.kind == kind] for kind in KINDS]
    in_turn = itertools.zip_longest(*(draw.sample(faults, len(faults)) for faults in of_kinds))
    wanted = (fault for faults in in_turn for fault in faults if fault and fault.place not in nothing)
    return list(itertools.islice(wanted, count))


def failure(clone: Path) -> str:
    """Of the fast tests; empty if they pass."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
    command += ["--tb=no", "-n", "2", "tests", "tools"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # a file may change twice in the second of its time
    try:
        done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end within 900 s"
    lines = (done.stdout + done.stderr).splitlines()
    reason = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), f"pytest: {lines[-1:]}")
    return reason.partition(" - ")[0] if done.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=8, help="faults in each package")
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=PACKAGES)
    parser.add_argument("--nothing", nargs="+", default=[], metavar="PLACE", help="where a fault changes nothing")
    options = parser.parse_args()
    found = dict.fromkeys(options.packages, 0)
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder)
        subprocess.run(["git", "clone", "-q", "--shared", str(CHECKOUT), str(clone)], check=True)
        if reason := failure(clone):
            sys.exit(f"without a fault: {reason}")
        for package in options.packages:
            for fault in chosen(package, options.seed, options.each, options.nothing):
                file = clone / LIBRARY / fault.path
                source = file.read_text(encoding="utf-8")
                file.write_text(fault.planted(source), encoding="utf-8")
                reason = failure(clone)
                file.write_text(source, encoding="utf-8")
                found[package] += bool(reason)
                print(f"{fault.place}  {fault.kind}: {fault.what}  {reason or 'NOT FOUND'}", flush=True)
    print("\n| package | planted | found |\n|---|---|---|")
    print("\n".join(f"| {package} | {options.each} | {count} |" for package, count in found.items()))
    return 0 if sum(found.values()) >= 0.9 * options.each * len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
