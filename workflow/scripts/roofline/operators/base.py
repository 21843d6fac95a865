"""The operator interface: an operator declares what it computes and how; the framework predicts, checks and times it.

A new operator is a package under operators/ whose operator.py has a subclass of Operator, or a file that the config
names (`operators: [my_operator.py]`). Its section of the config is named after its `rule`.

Its title, labels and advice are in operators/about.py.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from roofline.core.dtypes import COMMON_DTYPE, OPERATOR_TOLERANCES, relative_error
from roofline.core.terms import BYTES_AXIS_KEY, DEVICE_TRAITS, AccessPattern, Array, DeviceKind, RegimeLevel
from roofline.devices.base import CudaDevice, Device, Identity, Step
from roofline.operators.constants import CPU_HOST_CONSTANTS, Constant, Constants, gpu_host_constants
from roofline.operators.setting_types import CompletedConfig, OperatorSettings, Settings
from roofline.records.operator_record import DataFile
from roofline.records.seal_records import CostTerms
from roofline.records.timing_record import Check, make_check

if TYPE_CHECKING:
    from roofline.operators.drawing import Draw

# Rotating through several times the last-level cache makes every step read memory.
COLD_CACHE_MULTIPLE = 3
LARGEST_ROTATION_BYTES = 2 << 30
MOST_COPIES = 1 << 14  # more array objects of tiny inputs would fill the memory; too few copies are recorded as warm
LIBRARY_WORKSPACE_BYTES = 256 << 20  # for libraries and temporaries, on top of the inputs and outputs of a case
PROFILED_BYTES = 1 << 30  # several times an L2: a larger case that is added to the settings is not the one profiled
LEAST_GPU_SAMPLES = 1000  # of a cell whose steps take microseconds
GRAPH_APPLICATIONS = 24  # at least, of an operator in one CUDA graph, whose launch they share; it has many divisors
WRITTEN_SHARES: dict[AccessPattern, float] = {"read": 0, "write": 1, "copy": 1 / 2, "triad": 1 / 3}  # of the bytes


GENERIC_CONSTANTS: dict[str, Constants] = {
    "gpu": {
        **gpu_host_constants("array_operation_s"),
        "array_kernel_s": Constant(3e-6, "an H200, 2026-11", "the shortest kernels"),
    },
    "cpu": CPU_HOST_CONSTANTS,
}


class ExecutedFlops(NamedTuple):
    """The FLOPs that a kernel of ours executes in a step, by pipe (fp64, fp32, fp16, tensor).

    `why` names, in a few words, the work that the operator's declared FLOPs leave out.
    """

    flops: dict[str, float]
    why: str


@dataclass(frozen=True)
class Case:
    """One shape and dtype. `params` holds whatever else its inputs depend on, such as a seed or the path of a file."""

    shape: dict[str, int]
    dtype: str
    preset: str | None = None
    params: dict[str, Any] = field(default_factory=dict)

    def resized(self, **sizes: int) -> "Case":
        """Return the case with these sizes of its shape replaced."""
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
        """Return the job as JSON with sorted keys.

        It is a param of Snakemake: a change of this text, or of the fields of Job and Case, re-measures the job.
        """
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Return the job that `to_json` wrote."""
        fields = json.loads(text)
        return cls(fields["path"], tuple(Case(**case) for case in fields["cases"]), tuple(fields["files"]))


@dataclass(frozen=True)
class Prerequisite:
    """Files that jobs need, and their rule, which calls `make(path, params)`. The params are plain values of JSON."""

    rule: str
    pattern: str  # results/checkpoints/{name}.safetensors
    params: Callable[[CompletedConfig, str], dict]  # the string is the pattern's {name}
    make: Callable[[Path, dict], str]  # returns the line that the job prints


class Implementation(ABC):
    """A way to compute a case. Most define `compute(inputs)` alone and override `step` only where that is not enough.

    `__init__` divides the work among blocks or cores, from attributes of the device: after it a cell can be predicted.
    `prepare` receives the arrays and allocates the other buffers of a step. An override of either calls super's first.
    """

    name: ClassVar[str]
    kind: ClassVar[DeviceKind]
    scopes: ClassVar[tuple[str | None, ...]] = (None,)
    launches: ClassVar[int] = 1  # array operations or kernels that a step issues, for the generic prediction
    fused: ClassVar[bool] = False  # one kernel
    graph: ClassVar[bool] = False  # a CUDA graph
    modules: ClassVar[tuple[str, ...]] = ()  # that its cells import; a GPU's job imports them before its turn
    sources: ClassVar[tuple[Path, ...]] = ()  # files besides Python modules that a user's is made from, such as .cu
    level_ceilings: ClassVar[dict[RegimeLevel, str]] = {}  # of `level_bytes`, where blocks share reads of the L2

    def __init__(self, operator: "Operator", device: Device, case: Case, count: int = 1):
        """Steps rotate among `count` sets of inputs. Nothing is allocated yet."""
        self.operator, self.device, self.case, self.count = operator, device, case, count
        self.references: dict[int, Array] = {}  # by id of the copy; all implementations of a case share them

    def prepare(self, shared: dict, copies: list[dict]) -> None:
        """Take the arrays: `count` sets of inputs with different values, and the shared ones, which do not rotate."""
        self.shared, self.copies = shared, copies

    @classmethod
    def make_prepared(cls, operator: "Operator", device: Device, case: Case, shared: dict, copies: list[dict]) -> Self:
        """Return a cell of this class, constructed for `len(copies)` copies and prepared on these inputs."""
        cell = cls(operator, device, case, len(copies))
        cell.prepare(shared, copies)
        return cell

    def kernels(self) -> list[tuple]:
        """Return the CUDA kernels that it launches as (source, name, macros), so that jobs find them compiled."""
        return []

    @classmethod
    def unsupported(cls, device: Device, case: Case) -> str | None:
        """Return in one line why the device cannot compute the case this way; None if it can."""
        return None

    @classmethod
    def scopes_on(cls, device: Device) -> tuple[str | None, ...]:
        """Return the scopes that are timed on the device, by default all."""
        return cls.scopes

    @classmethod
    def copies_wanted(cls, case: Case, least_copies: int) -> int:
        """Return the number of copies to rotate among. `least_copies` of them suffice to make the inputs cold."""
        return least_copies

    @property
    def per_call(self) -> int:
        """The number of times that one call of a step applies the operator."""
        return 1

    def poison(self) -> None:
        """Overwrite the output buffers, which only steps write."""
        for copy in self.copies:
            for name in self.operator.outputs:
                self.device.poison(copy[name])

    def copy_of(self, index: int) -> dict:
        """Return the inputs and outputs of the last application in step number `index`."""
        return self.copies[((index + 1) * self.per_call - 1) % len(self.copies)]

    def compute(self, inputs: dict) -> Array:
        """Queue the work for one set of inputs on the device's stream, and return the result."""
        raise NotImplementedError(f"{type(self).__name__} has neither compute() nor step()")

    def step(self, scope: str | None) -> Callable[[int], Array]:
        """Return the function to time. It takes the step's number and returns the step's result."""
        merged, count = [{**self.shared, **copy} for copy in self.copies], len(self.copies)
        return lambda index: self.compute(merged[index % count])

    def plan(self) -> dict[str, Any]:
        """Return the division of the work, for the record."""
        return {}

    def cores(self, scope: str | None) -> int | None:
        """Return the number of cores of a CPU that compute a step, which set its roof; None for all of them."""
        return None

    def level_bytes(self, scope: str | None) -> dict[RegimeLevel, int]:
        """Return the bytes that all multiprocessors move through the L2 or shared memory, where those may take longest.

        The regime of a memory-bound cell names the slowest level.
        """
        return {}

    def memory_bytes(self, scope: str | None) -> int:
        """Return the bytes that a step moves at its level of memory if its inputs are not cold; by default all."""
        return self.operator.bytes(self.case, scope)

    def executed_flops(self, scope: str | None) -> ExecutedFlops | None:
        """Return the FLOPs that the kernel executes, which hardware counters confirm; None if unknown."""
        return None

    def costs(self, scope: str | None) -> CostTerms:
        """Return the costs of a step on top of its work, as multiples of the operator's constants."""
        start = {"array_kernel_s": float(self.launches)} if not DEVICE_TRAITS[self.kind].synchronous else None
        return CostTerms(calls={"array_operation_s": float(self.launches)}, start=start)


class CudaImplementation(Implementation):
    """A way to compute a case on a GPU by more than array operations: kernels of ours, or CUDA graphs."""

    kind = "gpu"
    device: CudaDevice

    def capture_launches(
        self, kernel: Any, blocks: int, threads: int, arguments: list[tuple], shared_bytes: int = 0
    ) -> list:
        """Return graphs of `per_call` launches each, which go through all arguments in turn, and then begin again."""
        graphs, per_call, count = [], self.per_call, len(arguments)
        for first in range(0, math.lcm(count, per_call), per_call):
            launches = [arguments[index % count] for index in range(first, first + per_call)]
            graphs.append(self.device.capture_launches(kernel, (blocks,), (threads,), launches, shared_bytes))
        return graphs

    def replay(self, graphs: list[tuple[Any, Array]]) -> Step:
        """Return a step that launches these graphs in turn, one a call. Each is paired with the array it writes."""
        stream, count = self.device.stream, len(graphs)

        def step(index: int) -> Array:
            graph, result = graphs[index % count]
            graph.launch(stream)
            return result

        return step


class Operator(ABC):
    """A computation: its jobs, counts, inputs, reference result and implementations.

    Counts hold for one case and scope. A scope is a part of the operator, or a way to launch it, that is timed
    separately; None is all of it.
    """

    name: ClassVar[str]
    rule: ClassVar[str]  # of the workflow, of the config's section and of the results' folder; by default the name
    picture: ClassVar[str]  # results/{picture}.png; by default the name
    sections: ClassVar[dict[str, type[Settings]]] = {}  # further sections of the config
    Settings: ClassVar[type[Settings]] = OperatorSettings
    implementations: ClassVar[tuple[type[Implementation], ...]]
    mix: ClassVar[AccessPattern] = "read"
    unit: ClassVar[str] = "cuda_core"  # or tensor_core: where it computes on a GPU that has both
    # The largest relative error by dtype: norm of the difference over norm of the reference.
    tolerance: ClassVar[Mapping[str, float]] = OPERATOR_TOLERANCES
    constants: ClassVar[Mapping[str, Constants]] = GENERIC_CONSTANTS
    prerequisite: ClassVar[Prerequisite | None] = None
    cached_when_warm: ClassVar[bool] = True  # warm inputs that fit the last-level cache have its ceiling as their roof
    path: str | None = None  # of the user's file, as the config names it
    cards: ClassVar[int] = 1  # GPUs that compute a case together; of 2, the second is the peer of an opened device
    measured_with_ceilings: ClassVar[bool] = False  # the jobs of rule peak_flops measure it
    profiled_in_thorough: ClassVar[int] = 1  # shapes whose hardware counters are read; by default it is one
    compared: ClassVar[bool] = True  # also measured on the CPU of a machine with a GPU
    # Sizes between which shapes are drawn after the seals: lowest, highest, a multiple of. {}: none are drawn.
    drawn_sizes: ClassVar[Mapping[str, tuple[int, int, int]]] = {}
    drawn_dtypes: ClassVar[tuple[str, ...]] = (COMMON_DTYPE,)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" in cls.__dict__:
            cls.rule = cls.__dict__.get("rule", cls.name)
            cls.picture = cls.__dict__.get("picture", cls.name)

    # -- what is measured

    @abstractmethod
    def jobs(self, config: CompletedConfig) -> Sequence[Job]:
        """Return the jobs that the config asks for. The operator's section is `getattr(config, self.rule)`."""

    @abstractmethod
    def flops(self, case: Case, scope: str | None = None) -> int:
        """Return the FLOPs of one application of a case, a multiply-add as two."""

    @abstractmethod
    def bytes(self, case: Case, scope: str | None = None) -> int:
        """Return the bytes of memory traffic of one application of a case, which place it under its roof."""

    def rotated_bytes(self, case: Case, scope: str | None = None) -> int:
        """Return the share of `bytes` that rotates, by default all. It decides the number of copies."""
        return self.bytes(case, scope)

    def written_bytes(self, case: Case, scope: str | None = None) -> int:
        """Return the share of `bytes` that is written, by default as the access pattern divides them."""
        return round(WRITTEN_SHARES[self.mix] * self.bytes(case, scope))

    def least_samples(self, case: Case) -> int:
        """Return the fewest samples that a GPU takes of a case, even beyond the time budget."""
        return 1

    def smallest(self, case: Case) -> Case | None:
        """Return the case whose time is the cost of a call; None if there is none."""
        return case.resized(**dict.fromkeys(case.shape, 1))

    def variations(self, case: Case) -> list[Case]:
        """Return the cases like this one that a reader of report.html may ask about; by default none."""
        return []

    def draw_case(self, draw: "Draw", sizes: dict[str, int]) -> Case:
        """Return a case of these drawn sizes, whatever else it needs drawn too."""
        return Case(sizes, draw.choose(self.drawn_dtypes))

    def profiled(self, config: CompletedConfig) -> list[Job]:
        """Return the jobs of one case whose hardware counters may be read, which the settings alone decide.

        The first is the smallest that moves PROFILED_BYTES, or the largest where none does; others are of its dtype.
        None where every kernel of a GPU is launched in a graph.
        """
        if all(implementation.graph for implementation in self.implementations_on("gpu")):
            return []

        def distance_to_profiled(job: Job) -> tuple[bool, int]:
            excess = self.bytes(job.cases[0], self.first_scope) - PROFILED_BYTES
            return excess < 0, abs(excess)

        each_case = [replace(job, cases=(case,)) for job in self.jobs(config) for case in job.cases]
        nearest_of_path: dict[str, Job] = {}
        for job in sorted(each_case, key=distance_to_profiled):
            nearest_of_path.setdefault(job.path, job)
        nearest_first = list(nearest_of_path.values())
        alike = [job for job in nearest_first if job.cases[0].dtype == nearest_first[0].cases[0].dtype]
        return alike[: self.profiled_in_thorough if config.effort == "thorough" else 1]

    def ready_cells(self, device: Device, case: Case) -> Iterable[Implementation] | None:
        """Return the cells of a profiled case if the operator makes their inputs itself; None if `inputs` does."""
        return None

    @property
    def first_scope(self) -> str | None:
        """The first scope of the first implementation."""
        return next((scope for implementation in self.implementations for scope in implementation.scopes), None)

    def unsupported(self, device: Device, case: Case) -> str | None:
        """Return in one line why no implementation can compute the case on the device; None if one can."""
        return None

    # -- inputs and results

    @abstractmethod
    def inputs(self, device: Device, case: Case, seed: int) -> dict:
        """Return the device arrays that rotate, by name: inputs of normal numbers by `seed`, and buffers to write."""

    def rotated_inputs(self, device: Device, case: Case, seed: int, count: int) -> list[dict]:
        """Return `count` sets of inputs with different values."""
        return [self.inputs(device, case, seed + index) for index in range(count)]

    def shared_inputs(self, device: Device, case: Case, seed: int) -> dict:
        """Return the device arrays that every step reads again, by name."""
        return {}

    @abstractmethod
    def reference(self, case: Case, inputs: dict) -> Array:
        """Return the result in float64, from host arrays of the shared inputs and of one copy."""

    def check(self, implementation: Implementation, scope: str | None) -> tuple[Check, float]:
        """Run the first step and return the comparison of its result, and the seconds that it took.

        The output buffers are poisoned first. A buffer that no step writes then fails the comparison after timing.
        """
        implementation.poison()
        step, results = implementation.step(scope), []
        (seconds,) = implementation.device.time_steps(lambda index: results.append(step(index)), 1)
        return self.compare(implementation, scope, 0, results[0]), seconds

    def compare(self, implementation: Implementation, scope: str | None, index: int, result: Array) -> Check:
        """Compare the result of step number `index` with the reference. Raises ArithmeticError if it is wrong."""
        device, case = implementation.device, implementation.case
        references, copy = implementation.references, implementation.copy_of(index)
        if id(copy) not in references:
            inputs = {**implementation.shared, **copy}
            host_inputs = {key: device.to_host(array) for key, array in inputs.items() if key not in self.outputs}
            references[id(copy)] = self.reference(case, host_inputs)
        error = relative_error(device.to_host(result), references[id(copy)])
        label = f"{self.name}, {implementation.name}, {case}: the result"
        return make_check(label, error, self.tolerance[case.dtype], "the whole result against float64")

    outputs: ClassVar[tuple[str, ...]] = ()  # names among the inputs that a step writes

    def memory_needed(self, case: Case, last_level_cache_bytes: int) -> int:
        """Return the bytes of device memory that a case takes at once."""
        moved = self.bytes(case)
        return count_rotation_copies(moved, last_level_cache_bytes) * moved + 2 * moved + LIBRARY_WORKSPACE_BYTES

    # -- settings and records

    def case_faults(self, case: Case) -> Iterator[str]:
        """Yield a line for a dtype without a tolerance, and for an axis that the shape lacks."""
        if case.dtype not in self.tolerance:
            yield f"no tolerance for dtype {case.dtype!r}; there is one for {', '.join(self.tolerance)}"
        axis, sizes = getattr(self, "axis", None), [*case.shape, BYTES_AXIS_KEY]
        if axis and axis[0] not in sizes:
            yield f"axis: {axis[0]!r} is not in the shape; allowed: {', '.join(sizes)}"

    def faults(self, config: CompletedConfig, devices: Iterable[Identity]) -> list[str]:
        """Return the faults of the settings that no schema can find, one line each."""
        return []

    def data_files(self, job: Job) -> list[DataFile]:
        """Return the data files that the job's inputs are read from, for the record."""
        return []

    def notes(self, device: Device, case: Case) -> list[str]:
        """Return lines for the record, such as that the device emulates the dtype."""
        note = device.emulation_note(case.dtype)
        return [note] if note else []

    def implementations_on(
        self, kind: DeviceKind, implementation_names: Iterable[str] | None = None
    ) -> list[type[Implementation]]:
        """Return the implementations for a kind of device in their order, limited to these names if there are any."""
        implementations = [implementation for implementation in self.implementations if implementation.kind == kind]
        if implementation_names is None:
            return implementations
        return [implementation for implementation in implementations if implementation.name in implementation_names]


def macro_options(**macros: int | str) -> tuple[str, ...]:
    """Return the options of the compiler that define a kernel's macros."""
    return tuple(f"-D{name}={value}" for name, value in macros.items())


def count_rotation_copies(copy_bytes: int, last_level_cache_bytes: int) -> int:
    """Return the number of copies of `copy_bytes` among which steps rotate, so that each has left the last-level cache.

    It is 1 for inputs that are several times as large as the cache, and at most MOST_COPIES.
    """
    rotation_bytes = min(COLD_CACHE_MULTIPLE * last_level_cache_bytes, LARGEST_ROTATION_BYTES)
    copies = math.ceil(rotation_bytes / max(1, copy_bytes))
    return min(MOST_COPIES, max(1, copies))
