"""Shapes that nobody chose: they follow from the hash of the seals, so that whoever has the seals draws the same."""

import hashlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from roofline.operators.base import Case, Job, Operator
from roofline.records.operator_record import DrawnShapes
from roofline.records.seal_records import prediction_code_sha256

DRAWN = "drawn"  # the path of an operator's job of drawn shapes
LARGEST_BYTES = 1 << 30  # that a drawn case moves
MOST_DRAWS = 100  # for each shape
OptionT = TypeVar("OptionT")


class Draw:
    """Numbers that follow from a seed alone: the SHA-256 of the seed and a counter."""

    def __init__(self, seed: str):
        self._seed, self._count = seed, 0

    def uniform(self) -> float:
        """Return the next number, at least 0 and below 1."""
        digest = hashlib.sha256(f"{self._seed} {self._count}".encode()).digest()
        self._count += 1
        return (int.from_bytes(digest[:8], "big") >> 11) / 2**53  # as many bits as a float holds

    def size(self, low: int, high: int, multiple: int) -> int:
        """Return a size from `low` to `high`, log-uniform, rounded to a multiple."""
        size = low * (high / low) ** self.uniform()
        return min(max(round(size / multiple) * multiple, low), high)

    def choose(self, options: Sequence[OptionT]) -> OptionT:
        """Return one of these, each as likely."""
        return options[int(self.uniform() * len(options))]


def draw_shapes(operator: Operator, seal_sha256: Mapping[str, str], count: int) -> tuple[Job, DrawnShapes]:
    """Return the job of so many shapes of an operator, and the record of what they follow from.

    `seal_sha256` has the hashes of the operator's seals by path. A shape is drawn again if it moves more than
    LARGEST_BYTES or was drawn before; there are fewer where the limits leave few.
    """
    code_sha256 = drawing_code_sha256(operator)
    seed = make_seed(seal_sha256, code_sha256)
    draw = Draw(seed)
    cases: list[Case] = []
    for _ in range(MOST_DRAWS * count):
        if len(cases) == count:
            break
        sizes = {name: draw.size(*limits) for name, limits in operator.drawn_sizes.items()}
        case = operator.draw_case(draw, sizes)
        if operator.bytes(case, operator.first_scope) <= LARGEST_BYTES and case not in cases:
            cases.append(case)
    shapes = [f"{case}" for case in cases]
    return Job(DRAWN, tuple(cases)), DrawnShapes(
        seals=[*sorted(seal_sha256)], seed=seed, code_sha256=code_sha256, shapes=shapes
    )


def make_seed(seal_sha256: Mapping[str, str], code_sha256: str) -> str:
    """Return the seed that follows from the hashes of seals by path and from that of the code."""
    sealed = [seal_sha256[path] for path in sorted(seal_sha256)]
    return hashlib.sha256(" ".join([*sealed, code_sha256]).encode()).hexdigest()


def drawing_code_sha256(operator: Operator) -> str:
    """Return one SHA-256 of the files that draw an operator's shapes and predict them."""
    files: Iterable[Path] = (Path(__file__), Path(inspect.getfile(type(operator))))
    own = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return hashlib.sha256(f"{own} {prediction_code_sha256()}".encode()).hexdigest()
