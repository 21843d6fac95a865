"""The loop over rows, in LLVM's representation, for the host's vectors."""

from collections.abc import Callable
from functools import cache

from roofline.devices.cpu.loops import Loop, compiled, host_vectors

UNROLLED = 4  # vectors of a turn, with sums of their own: one addition need not wait for the one before
Body = Callable[[str, int, Callable[[str], str]], list[str]]


@cache
def rows_loop() -> Loop:
    """Its arguments are the addresses of x and y, then rows and columns; y is x normalised row by row."""
    return compiled(rows_ir(host_vectors().bytes // 4))


def rows_ir(lanes: int) -> str:
    """By vectors of so many numbers, and what is left of a row number by number.

    Three passes over a row: the sum of its differences from its first number, the sum of the squares of their
    distances from their mean, and the result. The first finds the row in memory, the others in a cache.
    """
    vector = f"<{lanes} x float>"
    return "\n".join(
        [
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {vector})",
            f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
            "declare float @llvm.fmuladd.f32(float, float, float)",
            "declare float @llvm.sqrt.f32(float)",
            "define i64 @work(ptr %arguments) {",
            "entry:",
            *_argument("ptr", "x0", 0),
            *_argument("ptr", "y0", 1),
            *_argument("i64", "rows", 2),
            *_argument("i64", "columns", 3),
            f"  %turns = and i64 %columns, -{UNROLLED * lanes}",
            "  %count = sitofp i64 %columns to float",
            "  %row_bytes = mul i64 %columns, 4",
            "  br label %row",
            "row:",
            "  %r = phi i64 [0, %entry], [%r_next, %row_done]",
            "  %x = phi ptr [%x0, %entry], [%x_next, %row_done]",
            "  %y = phi ptr [%y0, %entry], [%y_next, %row_done]",
            "  %first = load float, ptr %x, align 4",
            *_splat("first", lanes),
            *_pass(
                "mean",
                "row",
                lanes,
                lambda kind, n, of: [
                    *_apart(kind, n, of, "first"),
                    f"  {of('new')} = fadd {kind} {of('old')}, {of('apart')}",
                ],
            ),
            "  %mean = fdiv float %mean_total, %count",
            *_splat("mean", lanes),
            *_pass(
                "square",
                "mean_done",
                lanes,
                lambda kind, n, of: [
                    *_apart(kind, n, of, "first"),
                    f"  {of('d')} = fsub {kind} {of('apart')}, {_named('mean', kind)}",
                    f"  {of('new')} = call {kind} @llvm.fmuladd.{_suffix(kind, lanes)}({kind} {of('d')}, "
                    f"{kind} {of('d')}, {kind} {of('old')})",
                ],
            ),
            "  %variance = fdiv float %square_total, %count",
            "  %deviation = call float @llvm.sqrt.f32(float %variance)",
            "  %inverse = fdiv float 1.0, %deviation",
            "  %constant = fcmp oeq float %variance, 0.0",
            "  %scale = select i1 %constant, float 0.0, float %inverse",
            *_splat("scale", lanes),
            *_pass(
                "result",
                "square_done",
                lanes,
                lambda kind, n, of: [
                    *_apart(kind, n, of, "first"),
                    f"  {of('d')} = fsub {kind} {of('apart')}, {_named('mean', kind)}",
                    f"  {of('out')} = fmul {kind} {of('d')}, {_named('scale', kind)}",
                    f"  {of('to')} = getelementptr float, ptr %y, i64 {of('place')}",
                    f"  store {kind} {of('out')}, ptr {of('to')}, align 4",
                ],
                sums=False,
            ),
            "  br label %row_done",
            "row_done:",
            "  %r_next = add i64 %r, 1",
            "  %x_next = getelementptr i8, ptr %x, i64 %row_bytes",
            "  %y_next = getelementptr i8, ptr %y, i64 %row_bytes",
            "  %more_rows = icmp slt i64 %r_next, %rows",
            "  br i1 %more_rows, label %row, label %out",
            "out:",
            "  ret i64 0",
            "}",
        ]
    )


def _argument(kind: str, name: str, number: int) -> list[str]:
    return [
        f"  %{name}_at = getelementptr i64, ptr %arguments, i64 {number}",
        f"  %{name} = load {kind}, ptr %{name}_at",
    ]


def _splat(name: str, lanes: int) -> list[str]:
    """%name in every lane of %name_v."""
    vector = f"<{lanes} x float>"
    return [
        f"  %{name}_one = insertelement {vector} poison, float %{name}, i64 0",
        f"  %{name}_v = shufflevector {vector} %{name}_one, {vector} poison, <{lanes} x i32> zeroinitializer",
    ]


def _named(name: str, kind: str) -> str:
    return f"%{name}" if kind == "float" else f"%{name}_v"


def _suffix(kind: str, lanes: int) -> str:
    return "f32" if kind == "float" else f"v{lanes}f32"


def _apart(kind: str, number: int, of: Callable[[str], str], name: str) -> list[str]:
    """x at a place less the row's first number."""
    return [
        f"  {of('at')} = getelementptr float, ptr %x, i64 {of('place')}",
        f"  {of('loaded')} = load {kind}, ptr {of('at')}, align 4",
        f"  {of('apart')} = fsub {kind} {of('loaded')}, {_named(name, kind)}",
    ]


def _pass(name: str, before: str, lanes: int, body: Body, sums: bool = True) -> list[str]:
    """A pass over a row: whole turns by vectors, the rest by numbers, and of sums their total, %name_total.

    It begins in block `before` and ends in block %name_done.
    """
    vector = f"<{lanes} x float>"

    def places(kind: str) -> list[str]:
        return [f"%{name}_{kind}{{}}{n}" for n in range(UNROLLED)]

    def of_vector(n: int) -> Callable[[str], str]:
        return lambda what: f"%{name}_v{what}{n}"

    def of_number(what: str) -> str:
        return f"%{name}_s{what}"

    turn = []
    for n in range(UNROLLED):
        of = of_vector(n)
        turn.append(f"  {of('place')} = add i64 %{name}_i, {n * lanes}")
        turn += body(vector, n, of)
    old = [f"  %{name}_vold{n} = phi {vector} [zeroinitializer, %{before}], [%{name}_vnew{n}, %{name}_turn]" for n in range(UNROLLED)]
    total = []
    if sums:
        ends = [f"  %{name}_end{n} = phi {vector} [zeroinitializer, %{before}], [%{name}_vnew{n}, %{name}_turn]" for n in range(UNROLLED)]
        total = [
            *ends,
            f"  %{name}_a = fadd {vector} %{name}_end0, %{name}_end1",
            f"  %{name}_b = fadd {vector} %{name}_end2, %{name}_end3",
            f"  %{name}_c = fadd {vector} %{name}_a, %{name}_b",
            f"  %{name}_lanes = call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32(float -0.0, {vector} %{name}_c)",
        ]
    return [
        f"  %{name}_any = icmp sgt i64 %turns, 0",
        f"  br i1 %{name}_any, label %{name}_turn, label %{name}_rest",
        f"{name}_turn:",
        f"  %{name}_i = phi i64 [0, %{before}], [%{name}_next, %{name}_turn]",
        *(old if sums else []),
        *turn,
        f"  %{name}_next = add i64 %{name}_i, {UNROLLED * lanes}",
        f"  %{name}_again = icmp slt i64 %{name}_next, %turns",
        f"  br i1 %{name}_again, label %{name}_turn, label %{name}_rest",
        f"{name}_rest:",
        *total,
        f"  %{name}_left = icmp slt i64 %turns, %columns",
        f"  br i1 %{name}_left, label %{name}_number, label %{name}_done",
        f"{name}_number:",
        f"  {of_number('place')} = phi i64 [%turns, %{name}_rest], [%{name}_after, %{name}_number]",
        *([f"  {of_number('old')} = phi float [%{name}_lanes, %{name}_rest], [{of_number('new')}, %{name}_number]"] if sums else []),
        *body("float", 0, of_number),
        f"  %{name}_after = add i64 {of_number('place')}, 1",
        f"  %{name}_on = icmp slt i64 %{name}_after, %columns",
        f"  br i1 %{name}_on, label %{name}_number, label %{name}_done",
        f"{name}_done:",
        *([f"  %{name}_total = phi float [%{name}_lanes, %{name}_rest], [{of_number('new')}, %{name}_number]"] if sums else []),
    ]
