"""Count the warp instructions of our kernels in their disassembly, and write the counts beside their sources.

    make counts      (for development: NVRTC, cuda-bindings and nvdisasm are needed, no GPU)

Of every form that the default configuration launches on cards of each architecture. `once` is the way from the start
of a kernel to its end, where each conditional branch falls through but those that go round a call, which only rare
numbers make; of a loop, one turn. `loop` is a turn of the largest innermost loop that loads from memory.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.devices.gpu.instruction_counts import Counts, form, source_of, source_sha256
from roofline.devices.gpu.kernel_compiler import COMPILE_OPTIONS, kernel_source
from roofline.operators.decode_attention import fused
from roofline.operators.decode_attention.counts import Shape
from roofline.operators.row_norm import cuda as row_norm

ROOT = Path(__file__).parents[2]
# Shared memory of a multiprocessor in KiB: CUDA programming guide, table of compute capabilities.
ARCHITECTURES = {75: 64, 80: 164, 86: 100, 89: 100, 90: 228, 100: 228, 120: 100}
MULTIPROCESSORS = range(20, 200)
MATRICES = ((1024, 128), (4096, 256), (8192, 512), (16384, 1024))
LINE = re.compile(r"^(\.L\w+):|/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", re.MULTILINE)
BRANCH = re.compile(r"^(@\S+ )?BRA(?:\.\w+)* (?:!?U?P\w+, )?`\((\.L\w+)\)")
LOADS = re.compile(r"\b(LDG|LDGSTS|UTMALDG)\b")


def row_norm_forms(architecture: int) -> set[tuple[str, ...]]:
    cards = ((rows, columns, number) for rows, columns in MATRICES for number in MULTIPROCESSORS)
    return {row_norm.divide(*card).defines() for card in cards}


def attention_forms(architecture: int) -> set[tuple[str, ...]]:
    capability, shared = divmod(architecture, 10), ARCHITECTURES[architecture] << 10
    shape = Shape(1, 8, 8, 64, 1024)
    return {
        variant.defines(dtype, shape.head_size)
        for dtype in ("fp32", "fp16")
        for variant in fused.variants(shape, dtype, capability, shared)
    }


KERNELS = {
    row_norm.COUNTS: ("row_norm", row_norm_forms),
    fused.COUNTS: ("decode_attention", attention_forms),
}


def compiled(source: str, name: str, architecture: int, defines: tuple[str, ...]) -> bytes:
    """Raises RuntimeError with the compiler's remarks."""
    import nvidia
    from cuda.bindings import nvrtc

    folders = [folder for path in nvidia.__path__ for folder in Path(path).glob("*/include")]
    options = [*COMPILE_OPTIONS, *defines, f"--gpu-architecture=sm_{architecture}"]
    options += [f"--include-path={folder}" for folder in folders]
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], [])
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{name} for sm_{architecture}: {result.name}")
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    code = b" " * size
    nvrtc.nvrtcGetCUBIN(program, code)
    return code


def disassembled(code: bytes, entry: str) -> str:
    """The text of one kernel."""
    import nvidia

    (tool, *_) = (tool for path in nvidia.__path__ for tool in Path(path).glob("*/bin/nvdisasm"))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        done = subprocess.run([tool, "-c", file.name], capture_output=True, text=True, check=True)
    sections = re.split(r"(?=^\s*\.section\s+\.text\.)", done.stdout, flags=re.MULTILINE)
    return next(text for text in sections if re.match(rf"\s*\.section\s+\.text\.{entry},", text))


def counted(text: str) -> Counts | None:
    """The warp instructions of a kernel's disassembly; None where the way through leaves out its loop."""
    labels, lines = {}, []
    for label, _, instruction in LINE.findall(text):
        if label:
            labels[label] = len(lines)
        else:
            lines.append(instruction)
    loops = [(start, place) for place, start in _branches(lines, labels) if start <= place]
    inner = [loop for loop in loops if not any(_within(other, loop) for other in loops)]
    loading = [loop for loop in inner if LOADS.search("\n".join(lines[loop[0] : loop[1] + 1]))]
    way = set(_way_through(lines, labels))
    first, last = max(loading, key=lambda loop: loop[1] - loop[0], default=(0, -1))
    if first <= last and not {first, last} <= way:
        return None
    return Counts(once=len(way), loop=last - first + 1)


def _within(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and other[0] <= one[0] and one[1] <= other[1]


def _branches(lines: list[str], labels: dict[str, int]) -> Iterator[tuple[int, int]]:
    """(place, where to) of each branch to a label; the last instruction of all branches to itself."""
    for place, line in enumerate(lines):
        if (found := BRANCH.match(line)) and labels[found[2]] != place:
            yield place, labels[found[2]]


def _way_through(lines: list[str], labels: dict[str, int]) -> Iterator[int]:
    targets, place = dict(_branches(lines, labels)), 0
    while place < len(lines):
        yield place
        line, target = lines[place], targets.get(place)
        if line.startswith(("EXIT", "RET")):
            return
        always = target is not None and not line.startswith("@")
        round_a_call = target is not None and target > place and _calls(lines[place + 1 : target])
        place = target if round_a_call or (always and target > place) else place + 1


def _calls(lines: list[str]) -> bool:
    return any(line.startswith("CALL") for line in lines)


def file_of(counts_file: Path) -> dict:
    entry, forms = KERNELS[counts_file]
    source, name = kernel_source(source_of(counts_file)), source_of(counts_file).name
    found: dict = {}
    for architecture in ARCHITECTURES:
        for defines in sorted(forms(architecture)):
            numbers = counted(disassembled(compiled(source, name, architecture, defines), entry))
            if numbers:
                found.setdefault(str(architecture), {})[form(defines)] = list(numbers)
    tools = [
        one for one in metadata.distributions() if one.name.startswith(("nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"))
    ]
    versions = {one.name: one.version for one in sorted(tools, key=lambda one: one.name)}
    return {"source_sha256": source_sha256(counts_file), "made_with": versions, "counts": found}


if __name__ == "__main__":
    for path in KERNELS:
        text = json.dumps(file_of(path), indent=1)
        path.write_text(re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", text) + "\n", encoding="utf-8")
        print(path.relative_to(ROOT))
