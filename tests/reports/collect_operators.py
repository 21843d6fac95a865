"""Launch kernels of ours, one after another, for Nsight Compute, and write what each declares.

    ncu --profile-from-start off ... python tests/reports/collect_operators.py DECLARED.json

Run it in the repository's root on a machine with a GPU, with the environment that `make` installs; README.md has the
whole command. Each case is launched once before the profiler looks, and once, on other inputs, while it does.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow" / "scripts"))

from roofline import devices
from roofline.operators.base import Case, Operator
from roofline.operators.decode_attention import DecodeAttention
from roofline.operators.rmsnorm_matmul import RmsNormMatmul
from roofline.operators.row_norm import RowNorm
from roofline.run import settings

PRESET = "llama-3-8b"
ATTENTION = (("fp16", 32, 8192), ("bf16", 128, 1024), ("fp32", 16, 8192), ("fp16", 8, 1024))  # batch, sequence
NORMS = ((65536, 1024), (16384, 4096), (8192, 512))
PRODUCTS = (("fp16", 1, 16384), ("bf16", 32, 16384), ("bf16", 128, 16384), ("fp16", 32, 4096))  # batch, hidden


def cases() -> Iterator[tuple[Operator, str, Case]]:
    """Operators, each with the implementation to launch, and a case: most move more than 250 MB, the last of each less
    than the L2 holds."""
    for dtype, batch, length in ATTENTION:
        section = {"presets": [PRESET], "dtypes": [dtype], "seq_lens": [length], "batch_sizes": [batch]}
        config = settings.complete({"decode_attn": section}).config
        operator = DecodeAttention()
        weights = Path(operator.prerequisite.pattern.format(name=PRESET))
        if not weights.exists():
            weights.parent.mkdir(parents=True, exist_ok=True)
            operator.prerequisite.make(weights, operator.prerequisite.params(config, PRESET))
        yield operator, "fused", operator.jobs(config)[0].cases[0]
    for rows, columns in NORMS:
        yield RowNorm(), "welford", Case({"rows": rows, "columns": columns}, "fp32")
    for dtype, batch, hidden in PRODUCTS:
        yield RmsNormMatmul(), "fused", Case({"batch": batch, "hidden": hidden}, dtype)


def launched(device, operator: Operator, name: str, case: Case) -> dict:
    """What one step declares, which the profiler has seen."""
    shared, copies = operator.shared_inputs(device, case, 1), operator.rotated_inputs(device, case, 2, 2)
    (kind,) = operator.implementations_on("gpu", [name])
    cell = kind(operator, device, case, shared, copies)
    scope = cell.scopes[0]
    step = cell.step(scope)
    step(0)
    device.profile(lambda: step(1), marked=False)
    executed = cell.executed_flops(scope)
    return {
        "operator": operator.name,
        "case": str(case),
        "flops": operator.flops(case, scope),
        "executed_flops": executed.flops,
        "why": executed.why,
        "read_bytes": operator.bytes(case, scope) - operator.written_bytes(case, scope),
        "written_bytes": operator.written_bytes(case, scope),
    }


def main(declared: str) -> None:
    device = devices.open_device("gpu0")
    found = []
    for operator, name, case in cases():
        found.append(launched(device, operator, name, case))
        device.xp.get_default_memory_pool().free_all_blocks()
        print(found[-1]["operator"], found[-1]["case"], flush=True)
    Path(declared).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
