"""The loop over rows that a CPU normalises, as LLVM IR for the host's vectors."""

from functools import cache
from pathlib import Path
from string import Template

from roofline.devices.cpu.loops import Loop, compile_loop, host_vectors

UNROLLED_VECTORS = 4  # of a turn, each with its own sum, so that no addition waits for the last
ROWS_LOOP = Path(__file__).with_suffix(".ll")  # a template, which says what is filled in
# For one vector of a turn: x less the first number of the row, then the body of the pass.
DIFFERENCE_IR = """  %{name}_place{n} = add i64 %{name}_i, {offset}
  %{name}_at{n} = getelementptr float, ptr %x, i64 %{name}_place{n}
  %{name}_x{n} = load {v}, ptr %{name}_at{n}, align 4
  %{name}_apart{n} = fsub {v} %{name}_x{n}, %first_v
"""
FROM_MEAN_IR = "  %{name}_d{n} = fsub {v} %{name}_apart{n}, %mean_v\n"
PASS_BODIES_IR = {
    "mean": "  %mean_new{n} = fadd {v} %mean_old{n}, %mean_apart{n}\n",
    "square": FROM_MEAN_IR
    + "  %square_new{n} = call {v} @llvm.fmuladd.v{lanes}f32({v} %square_d{n}, {v} %square_d{n}, {v} %square_old{n})\n",
    "result": FROM_MEAN_IR
    + """  %result_out{n} = fmul {v} %result_d{n}, %scale_v
  %result_to{n} = getelementptr float, ptr %y, i64 %result_place{n}
  store {v} %result_out{n}, ptr %result_to{n}, align 4
""",
}
SUM_IR = "  %{name}_old{n} = phi {v} [zeroinitializer, %{before}], [%{name}_new{n}, %{name}_turn]\n"
PASS_IR = """  br label %{name}_turn
{name}_turn:
  %{name}_i = phi i64 [0, %{before}], [%{name}_next, %{name}_turn]
{sums}{bodies}  %{name}_next = add i64 %{name}_i, {turn}
  %{name}_again = icmp slt i64 %{name}_next, %columns
  br i1 %{name}_again, label %{name}_turn, label %{name}_done
{name}_done:"""


@cache
def compile_rows_loop() -> Loop:
    """Return the loop, compiled for the host, that writes to y the rows of x, normalised.

    Its arguments are the addresses of x and y, then rows and columns, a multiple of array_row_norm.COLUMN_MULTIPLE.
    """
    return compile_loop(rows_loop_ir(host_vectors()[0] // 4))


def rows_loop_ir(lanes: int) -> str:
    """Return the LLVM IR of the loop, for vectors of `lanes` numbers.

    It has three passes over a row: the sum of its differences from its first number, the sum of the squares of their
    distances from their mean, and the result. The first finds the row in memory, the others in a cache.
    """
    return Template(ROWS_LOOP.read_text()).substitute(
        vector=f"<{lanes} x float>",
        lanes=lanes,
        mean_pass=_pass_ir("mean", "row", lanes),
        square_pass=_pass_ir("square", "mean_done", lanes),
        result_pass=_pass_ir("result", "square_done", lanes),
    )


def _pass_ir(name: str, before: str, lanes: int) -> str:
    """Return the IR of a pass over a row. It follows the basic block `before` and ends in block %name_done."""

    def repeat_per_vector(template: str) -> str:
        values = {"name": name, "before": before, "v": f"<{lanes} x float>", "lanes": lanes}
        vectors = range(UNROLLED_VECTORS)
        return "".join(template.format(n=vector, offset=vector * lanes, **values) for vector in vectors)

    sums = repeat_per_vector(SUM_IR) if name != "result" else ""
    bodies = repeat_per_vector(DIFFERENCE_IR + PASS_BODIES_IR[name])
    return PASS_IR.format(name=name, before=before, sums=sums, bodies=bodies, turn=UNROLLED_VECTORS * lanes)
