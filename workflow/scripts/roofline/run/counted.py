"""What Nsight Compute counted of kernels of ours, beside what they declare, from the reports in tests/reports."""

import json
from dataclasses import dataclass
from pathlib import Path

from roofline.analysis.placing import place
from roofline.analysis.results import read_table
from roofline.analysis.table import PlacedKernelGroup
from roofline.core.formatting import duration, number, percent
from roofline.measure.profile_report import read_profile, require_card
from roofline.operators import about
from roofline.records.profile import KernelLaunches
from roofline.report.markdown import table
from roofline.report.placing import limit_of
from roofline.run.committed import FOLDER

REPORTS = Path(__file__).parents[4] / "tests" / "reports"
DECLARED = "operators.json"
# The command of `make place` repeats a launch for 8 passes; the others have times and memory traffic alone.
PLACED, EMPTIED, ONCE = "operators.ncu-rep", "operators_emptied.ncu-rep", "operators_once.ncu-rep"


@dataclass(frozen=True)
class Counted:
    """One launch, and what its operator declares of it."""

    declared: dict
    launch: KernelLaunches
    placed: PlacedKernelGroup
    read_bytes: dict[str, float]  # from memory, by report

    def reads(self, report: str) -> float:
        """Bytes read from memory, counted over declared."""
        return self.read_bytes[report] / self.declared["read_bytes"]

    @property
    def roof(self) -> float:
        """Of the launch's time what its declared bytes take at the memory's ceiling."""
        memory = self.placed.roof_at("memory")
        declared = self.declared["read_bytes"] + self.declared["written_bytes"]
        return memory.share * declared / memory.amount

    @property
    def executed(self) -> float:
        """FLOPs, counted over those of the kernel's formula, on the pipes that the formula is of."""
        formula = self.declared["executed_flops"]
        return sum(self._flops(pipe) for pipe in formula) / sum(formula.values())

    @property
    def flops(self) -> float:
        """FLOPs of all pipes, counted over what the operator declares that it takes."""
        return self.placed.flops / self.declared["flops"]

    def _flops(self, pipe: str) -> float:
        launch = self.launch
        counts = launch.tensor_core_flops.values() if pipe == "tensor" else [launch.cuda_core_flops[pipe]]
        return sum(one[0] for one in counts)


def counted(folder: Path = REPORTS) -> list[Counted]:
    """In the order of the launches. Raises BadReport, CorruptRecord, OSError, and ValueError where the reports and what
    was declared are not of the same launches."""
    declared = json.loads((folder / DECLARED).read_text(encoding="utf-8"))
    names = [one["operator"] for one in declared]
    records = {report: read_profile(folder / report, report) for report in (PLACED, EMPTIED, ONCE)}
    launches = {report: sorted(one.kernels, key=lambda kernel: kernel.launches) for report, one in records.items()}
    for report, kernels in launches.items():
        if [one.name for one in kernels for _ in one.launches] != names or len(kernels) < len(names):
            raise ValueError(f"{report}: other launches than {DECLARED} has")
    ceilings = read_table(FOLDER / "roofline.json")
    device = require_card(records[PLACED], {name: one.name for name, one in ceilings.devices.items()})
    found = []
    for place_of, beside in enumerate(declared):
        launch = launches[PLACED][place_of]
        alone = records[PLACED].model_copy(update={"kernels": [launch]})
        (placed,) = place(alone, device, ceilings.ceilings, ceilings.calls).kernels
        reads = {report: kernels[place_of].memory_read_bytes[0] for report, kernels in launches.items()}
        found.append(Counted(beside, launch, placed, reads))
    return found


def counted_table() -> str:
    """A row for each launch. Raises as counted() does."""
    columns = ["operator", "case", "why it executes more", "limited by", "time", "of the ceiling"]
    columns += ["read, emptied", "read, repeated", "read, once", "FLOPs executed", "FLOPs declared"]
    titles = about.builtin()
    rows = [
        [
            titles[one.declared["operator"]].title,
            one.declared["case"].replace("heads 32, kv_heads 8, head_size 128, ", ""),
            one.declared["why"],
            limit_of(one.placed),
            duration(one.placed.mean_s),
            percent(one.roof),
            *(f"{one.reads(report):.3f}" for report in (EMPTIED, PLACED, ONCE)),
            f"{one.executed:.3f}",
            number(one.flops),
        ]
        for one in counted()
    ]
    return table(columns, rows, 4)
