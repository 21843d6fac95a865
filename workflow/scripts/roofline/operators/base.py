"""The operator interface: an operator declares what it computes and how; the framework predicts, checks and times it.

A new operator is a package under operators/ whose operator.py has a subclass of Operator, or a file that the config
names (`operators: [my_operator.py]`). Its section of the config is named after its `rule`.

Its title, labels and advice are in operators/about.py.
"""

import ast
import inspect
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from roofline.core.dtypes import ITEM_BYTES, relative_error, require_close
from roofline.core.terms import DEVICE_TRAITS, RegimeLevel
from roofline.devices.base import Identity
from roofline.operators.constants import CPU_HOST_CONSTANTS, Constant, Constants, gpu_host_constants
from roofline.operators.setting_types import OperatorSettings, Settings
from roofline.records.operator_record import DataFile
from roofline.records.seal_records import CostTerms
from roofline.records.timing_record import Check

# Rotating through several times the last-level cache makes every step read memory.
COLD_CACHE_MULTIPLE = 3
LARGEST_ROTATION_BYTES = 2 << 30
MOST_COPIES = 1 << 14  # of tiny inputs the arrays themselves would fill the memory; fewer copies are recorded as warm
LIBRARY_WORKSPACE_BYTES = 256 << 20  # for libraries and temporaries, besides what a case needs itself
PROFILED_BYTES = 1 << 30  # several times an L2; an added larger case is not counted


GENERIC_CONSTANTS: dict[str, Constants] = {
    "gpu": {
        **gpu_host_constants("array_operation_s"),
        "array_kernel_s": Constant(3e-6, "an H200, 2026-11", "the shortest kernels"),
    },
    "cpu": CPU_HOST_CONSTANTS,
}


def emulation_skip_reason(case) -> str | None:
    """Of NumPy, which has no arithmetic of fewer than 32 bits: why a case is skipped."""
    emulated = ITEM_BYTES[case.dtype] < ITEM_BYTES["fp32"]
    return f"NumPy emulates {case.dtype}: at batch 1 only" if emulated and case.shape["batch"] > 1 else None


class ExecutedFlops(NamedTuple):
    """What a kernel of ours executes for a step, by its FLOP formula: FLOPs by pipe (fp64, fp32, fp16, tensor), and in
    a few words what of it the declared FLOPs leave out."""

    flops: dict[str, float]
    why: str


WRITTEN_SHARES = {"read": 0, "write": 1, "copy": 1 / 2, "triad": 1 / 3}  # of a mix's bytes


@dataclass(frozen=True)
class Case:
    """One shape and dtype. `params` is what its inputs depend on next to these: a seed, the path of a file."""

    shape: dict[str, int]
    dtype: str
    preset: str | None = None
    params: dict[str, Any] = field(default_factory=dict)

    def resized(self, **sizes: int) -> "Case":
        return replace(self, shape={**self.shape, **sizes})

    def __str__(self) -> str:
        return " ".join(filter(None, [self.preset, self.dtype, ", ".join(f"{k} {n}" for k, n in self.shape.items())]))


@dataclass(frozen=True)
class Job:
    """The cases of one record, results/{device}/{rule}/{path}.json, and the files that they need."""

    path: str
    cases: tuple[Case, ...]
    files: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        found = json.loads(text)
        return cls(found["path"], tuple(Case(**case) for case in found["cases"]), tuple(found["files"]))


@dataclass(frozen=True)
class Prerequisite:
    """Files that jobs need and its own rule makes: `make(path, params)`, with JSON-able params by path."""

    rule: str
    pattern: str  # results/checkpoints/{name}.safetensors
    params: Callable[[Any, str], dict]  # of the config and the pattern's {name}
    make: Callable[[Path, dict], str]  # returns what to say


class Implementation(ABC):
    """One way to compute a case. The simple way is `compute(inputs)`; override `step` for anything else.

    `__init__` divides the work among blocks or cores, from attributes of the device: after it a cell can be predicted.
    `prepare` is handed the arrays, and allocates what else a step needs. Override either, and call super's first.
    """

    name: ClassVar[str]
    kind: ClassVar[str]  # of device: gpu or cpu
    scopes: ClassVar[tuple[str | None, ...]] = (None,)
    launches: ClassVar[int] = 1  # array operations or kernels that a step issues, for the generic prediction
    fused: ClassVar[bool] = False  # one kernel
    graph: ClassVar[bool] = False  # a CUDA graph
    modules: ClassVar[tuple[str, ...]] = ()  # that its cells import, for a GPU's job to do so before its turn
    sources: ClassVar[tuple[Path, ...]] = ()  # files next to Python modules, such as .cu, that it is made from

    def __init__(self, operator: "Operator", device, case: Case, count: int = 1):
        """`count`: sets of inputs among which steps rotate. Nothing is allocated."""
        self.operator, self.device, self.case, self.count = operator, device, case, count
        self.references: dict[int, Any] = {}  # by the copy's id: a case's implementations have theirs in common

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """`copies` are `count` equal sets of the operator's inputs; `shared` are the inputs that do not rotate."""
        self.shared, self.copies = shared, copies

    @classmethod
    def prepared(cls, operator: "Operator", device, case: Case, shared: dict, copies: list[dict]) -> Self:
        cell = cls(operator, device, case, len(copies))
        cell.prepare(shared, copies)
        return cell

    def kernels(self) -> list[tuple]:
        """CUDA kernels that it launches: (source, name, macros), to be compiled before jobs."""
        return []

    @classmethod
    def unsupported(cls, device, case: Case) -> str | None:
        """Why a device cannot compute a case this way, in one line; None if it can."""
        return None

    @classmethod
    def copies_wanted(cls, case: Case, least: int) -> int:
        """How many copies to rotate among, of which `least` make the inputs cold."""
        return least

    @property
    def per_call(self) -> int:
        """Times that one call of a step applies the operator."""
        return 1

    def poison(self) -> None:
        """Overwrite what only steps write."""
        for copy in self.copies:
            for name in self.operator.outputs:
                self.device.poison(copy[name])

    def copy_of(self, index: int) -> dict:
        """The inputs of the last application of step number `index`."""
        return self.copies[((index + 1) * self.per_call - 1) % len(self.copies)]

    def compute(self, inputs: dict) -> Any:
        """The result for one set of inputs, queued on the device's stream."""
        raise NotImplementedError(f"{type(self).__name__} has neither compute() nor step()")

    def step(self, scope: str | None) -> Callable[[int], Any]:
        """The function to time: it is handed the step's number and returns the step's result."""
        merged, count = [{**self.shared, **copy} for copy in self.copies], len(self.copies)
        return lambda index: self.compute(merged[index % count])

    def plan(self) -> dict[str, Any]:
        """How the work is divided, for the record."""
        return {}

    def cores(self, scope: str | None) -> int | None:
        """How many cores of a CPU compute a step, if not all: its roof is theirs."""
        return None

    def level_bytes(self, scope: str | None) -> dict[RegimeLevel, int]:
        """Bytes through the L2 or shared memory, of all multiprocessors, if they may take longest. The regime of a
        memory-bound cell names the level that does."""
        return {}

    def executed_flops(self, scope: str | None) -> ExecutedFlops | None:
        """What the kernel executes, for counters to confirm; None if unknown."""
        return None

    def costs(self, scope: str | None) -> CostTerms:
        """What a step costs besides its work, in multiples of constants."""
        start = {"array_kernel_s": float(self.launches)} if not DEVICE_TRAITS[self.kind].synchronous else None
        return CostTerms(calls={"array_operation_s": float(self.launches)}, start=start)


class Operator(ABC):
    """What is computed. Counts are of one case and scope: FLOPs with a multiply-add as two, bytes of memory traffic."""

    name: ClassVar[str]
    rule: ClassVar[str]  # of the workflow, of the config's section and of the results' folder; by default the name
    picture: ClassVar[str]  # results/{picture}.png; by default the name
    Settings: ClassVar[type[Settings]] = OperatorSettings
    sections: ClassVar[dict[str, type[Settings]]] = {}  # of the config, besides its own
    implementations: ClassVar[tuple[type[Implementation], ...]]
    mix: ClassVar[str] = "read"  # of memory accesses: read, write, copy or triad
    unit: ClassVar[str] = "cuda_core"  # that it computes on where a GPU has tensor cores too
    # By dtype: the norm of the difference over the norm.
    tolerance: ClassVar[dict[str, float]] = {"fp64": 1e-12, "fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-2, "fp8_e4m3": 5e-2}
    constants: ClassVar[dict[str, Constants]] = GENERIC_CONSTANTS
    prerequisite: ClassVar[Prerequisite | None] = None
    cached_when_warm: ClassVar[bool] = True  # warm inputs that fit the last-level cache stand under its ceiling
    path: str | None = None  # of the user's file, as the config names it
    measured_with_ceilings: ClassVar[bool] = False  # by the jobs of rule peak_flops
    compared: ClassVar[bool] = True  # measured on a CPU next to a GPU too

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if "name" in cls.__dict__:
            cls.rule = cls.__dict__.get("rule", cls.name)
            cls.picture = cls.__dict__.get("picture", cls.name)

    # -- what is measured

    @abstractmethod
    def jobs(self, config) -> Sequence[Job]:
        """The jobs that the completed config asks for; the operator's section is `getattr(config, self.rule)`."""

    @abstractmethod
    def flops(self, case: Case, scope: str | None = None) -> int: ...

    @abstractmethod
    def bytes(self, case: Case, scope: str | None = None) -> int: ...

    def rotated_bytes(self, case: Case, scope: str | None = None) -> int:
        """Of the bytes those that rotate; by default all. They decide how many copies there are."""
        return self.bytes(case, scope)

    def written_bytes(self, case: Case, scope: str | None = None) -> int:
        """Of the bytes those that are written; by default as the mix divides them."""
        return round(WRITTEN_SHARES[self.mix] * self.bytes(case, scope))

    def least_samples(self, case: Case) -> int:
        """On a GPU, whatever they take."""
        return 1

    def smallest(self, case: Case) -> Case | None:
        """The case that shows what a call costs; None where there is none."""
        return case.resized(**dict.fromkeys(case.shape, 1))

    def profiled(self, config) -> Job | None:
        """The job whose hardware counters may be read, by the settings alone: of the smallest case that moves
        COUNTED_BYTES, or else of the largest. None without a kernel that is launched outside a graph."""
        jobs = [replace(job, cases=(case,)) for job in self.jobs(config) for case in job.cases]
        launched = any(not one.graph for one in self.implementations_on("gpu"))

        def apart(job: Job) -> tuple[bool, int]:
            more = self.bytes(job.cases[0], self.first_scope) - PROFILED_BYTES
            return more < 0, abs(more)

        return min(jobs, key=apart, default=None) if launched else None

    def ready_cells(self, device, case: Case) -> Iterable[Implementation] | None:
        """A profiled case's implementations, where they bring their own inputs."""
        return None

    @property
    def first_scope(self) -> str | None:
        return next((scope for one in self.implementations for scope in one.scopes), None)

    def unsupported(self, device, case: Case) -> str | None:
        """Why no implementation can compute a case on a device, in one line."""
        return None

    # -- what it is computed from, and what must come of it

    @abstractmethod
    def inputs(self, device, case: Case, seed: int) -> dict:
        """Arrays on the device that every step reads anew, and buffers that it writes; normal numbers by `seed`."""

    def rotated_inputs(self, device, case: Case, seed: int, count: int) -> list[dict]:
        """So many sets of inputs with different values."""
        return [self.inputs(device, case, seed + place) for place in range(count)]

    def shared_inputs(self, device, case: Case, seed: int) -> dict:
        """Arrays on the device that every step reads again."""
        return {}

    @abstractmethod
    def reference(self, case: Case, inputs: dict) -> Any:
        """The result in float64, from host arrays of the shared inputs and of one copy."""

    def check(self, implementation: Implementation, scope: str | None) -> tuple[Check, float]:
        """The comparison of the first step's result, and the seconds that the step took.

        Buffers that only steps write are poisoned first, so that one that no step writes shows after them all.
        """
        implementation.poison()
        result, seconds = run_first_step(implementation, scope)
        return self.compare(implementation, scope, 0, result), seconds

    def compare(self, implementation: Implementation, scope: str | None, index: int, result: Any) -> Check:
        """What step number `index` returned against the reference. Raises ArithmeticError where it is wrong."""
        device, case = implementation.device, implementation.case
        known, copy = implementation.references, implementation.copy_of(index)
        if id(copy) not in known:
            inputs = {**implementation.shared, **copy}
            on_host = {key: device.to_host(array) for key, array in inputs.items() if key not in self.outputs}
            known[id(copy)] = self.reference(case, on_host)
        error = relative_error(device.to_host(result), known[id(copy)])
        tolerance = self.tolerance[case.dtype]
        require_close(f"{self.name}, {implementation.name}, {case}: the result", error, tolerance)
        return Check(compared="the whole result against float64", relative_error=error, tolerance=tolerance)

    outputs: ClassVar[tuple[str, ...]] = ()  # names among the inputs that a step writes

    def memory_needed(self, case: Case, last_level_cache_bytes: int) -> int:
        """Bytes of the device that a case takes at once."""
        moved = self.bytes(case)
        return count_rotation_copies(moved, last_level_cache_bytes) * moved + 2 * moved + LIBRARY_WORKSPACE_BYTES

    # -- settings and records

    def faults(self, config, devices: Iterable[Identity]) -> list[str]:
        """What is wrong with the settings beyond what the schema says, one line each."""
        return []

    def data_files(self, job: Job) -> list[DataFile]:
        """What was measured with, for the record."""
        return []

    def notes(self, device, case: Case) -> list[str]:
        note = device.emulation_note(case.dtype)
        return [note] if note else []

    def implementations_on(self, kind: str, wanted: Iterable[str] | None = None) -> list[type[Implementation]]:
        """Those for a kind of device, in their order; of those wanted, where a list is given."""
        return [one for one in self.implementations if one.kind == kind and (wanted is None or one.name in wanted)]

    def source_files(self, kind: str | None = None) -> set[Path]:
        """Files that measurements on a kind of device follow from, besides what these modules import."""
        mine = {Path(inspect.getfile(type(self)))}
        for implementation in self.implementations:
            if kind in (None, implementation.kind):
                mine |= {Path(inspect.getfile(implementation)), *implementation.sources}
        if self.path:
            mine |= {file for one in mine if one.suffix == ".py" for file in find_local_modules(one)}
        if self.path and not Path(self.path).is_absolute():  # as the config has it: a run that moves stays up to date
            return {Path(os.path.relpath(file)) for file in mine}
        return mine


@cache
def find_local_modules(file: Path) -> frozenset[Path]:
    """A Python file and the modules in its folder that it imports, directly or through others."""
    found: set[Path] = set()
    new = {file}
    while new:
        found |= new
        nodes = [node for one in new for node in ast.walk(ast.parse(one.read_text(encoding="utf-8")))]
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        near = {file.with_name(f"{name.partition('.')[0]}.py") for name in names}
        new = {path for path in near if path.is_file()} - found
    return frozenset(found)


def run_first_step(implementation: Implementation, scope: str | None) -> tuple[Any, float]:
    """What the first step returns, and the seconds that it took."""
    results = []
    step = implementation.step(scope)
    seconds = implementation.device.time_steps(lambda index: results.append(step(index)), 1)[0]
    return results[0], seconds


def count_rotation_copies(bytes_of_one: int, last_level_cache_bytes: int) -> int:
    """How many copies to rotate among so that what a step reads has left the last-level cache; 1 is enough for inputs
    that are several times as large themselves."""
    wanted = min(COLD_CACHE_MULTIPLE * last_level_cache_bytes, LARGEST_ROTATION_BYTES)
    return min(MOST_COPIES, max(1, -(-wanted // max(1, bytes_of_one))))
