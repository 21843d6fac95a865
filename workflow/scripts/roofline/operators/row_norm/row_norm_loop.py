"""The loop over rows that a CPU normalises, as LLVM IR for the host's vectors."""

from functools import cache

from roofline.devices.cpu.loops import Loop, compile_loop, host_vectors

UNROLLED_VECTORS = 4  # of a turn, each with its own sum, so that no addition waits for the last

FUNCTION_IR = """
declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {v})
declare {v} @llvm.fmuladd.v{lanes}f32({v}, {v}, {v})
declare float @llvm.sqrt.f32(float)
define i64 @work(ptr %arguments) {{
entry:
  %y_at = getelementptr i64, ptr %arguments, i64 1
  %rows_at = getelementptr i64, ptr %arguments, i64 2
  %columns_at = getelementptr i64, ptr %arguments, i64 3
  %x0 = load ptr, ptr %arguments
  %y0 = load ptr, ptr %y_at
  %rows = load i64, ptr %rows_at
  %columns = load i64, ptr %columns_at
  %count = sitofp i64 %columns to float
  %row_bytes = mul i64 %columns, 4
  br label %row
row:
  %r = phi i64 [0, %entry], [%r_next, %result_done]
  %x = phi ptr [%x0, %entry], [%x_next, %result_done]
  %y = phi ptr [%y0, %entry], [%y_next, %result_done]
  %first = load float, ptr %x, align 4
{first}{mean_pass}
  %mean = fdiv float %mean_total, %count
{mean}{square_pass}
  %variance = fdiv float %square_total, %count
  %deviation = call float @llvm.sqrt.f32(float %variance)
  %inverse = fdiv float 1.0, %deviation
  %constant = fcmp oeq float %variance, 0.0
  %scale = select i1 %constant, float 0.0, float %inverse
{scale}{result_pass}
  %r_next = add i64 %r, 1
  %x_next = getelementptr i8, ptr %x, i64 %row_bytes
  %y_next = getelementptr i8, ptr %y, i64 %row_bytes
  %more_rows = icmp slt i64 %r_next, %rows
  br i1 %more_rows, label %row, label %out
out:
  ret i64 0
}}
"""
BROADCAST_IR = """  %{name}_one = insertelement {v} poison, float %{name}, i64 0
  %{name}_v = shufflevector {v} %{name}_one, {v} poison, <{lanes} x i32> zeroinitializer
"""
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
{name}_done:
"""
TOTAL_IR = """  %{name}_a = fadd {v} %{name}_new0, %{name}_new1
  %{name}_b = fadd {v} %{name}_new2, %{name}_new3
  %{name}_c = fadd {v} %{name}_a, %{name}_b
  %{name}_total = call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32(float -0.0, {v} %{name}_c)
"""


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
    names = {"v": f"<{lanes} x float>", "lanes": lanes}
    return FUNCTION_IR.format(
        **names,
        **{name: BROADCAST_IR.format(name=name, **names) for name in ("first", "mean", "scale")},
        mean_pass=_pass_ir("mean", "row", names) + TOTAL_IR.format(name="mean", **names),
        square_pass=_pass_ir("square", "mean_done", names) + TOTAL_IR.format(name="square", **names),
        result_pass=_pass_ir("result", "square_done", names),
    )


def _pass_ir(name: str, before: str, names: dict) -> str:
    """Return the IR of a pass over a row. It follows the basic block `before` and ends in block %name_done."""
    lanes = names["lanes"]

    def repeat_per_vector(template: str) -> str:
        values = {"name": name, "before": before, **names}
        vectors = range(UNROLLED_VECTORS)
        return "".join(template.format(n=vector, offset=vector * lanes, **values) for vector in vectors)

    sums = repeat_per_vector(SUM_IR) if name != "result" else ""
    bodies = repeat_per_vector(DIFFERENCE_IR + PASS_BODIES_IR[name])
    return PASS_IR.format(name=name, before=before, sums=sums, bodies=bodies, turn=UNROLLED_VECTORS * lanes)
