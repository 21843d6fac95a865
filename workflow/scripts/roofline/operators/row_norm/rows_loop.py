"""The loop over rows, in LLVM's representation, for the host's vectors."""

from collections.abc import Callable
from functools import cache

from roofline.devices.cpu.loops import Loop, compiled, host_vectors

UNROLLED = 4  # vectors of a turn, with sums of their own: one addition need not wait for the one before
Body = Callable[[str, Callable[[str], str]], list[str]]  # of a kind, and of its names


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
                lambda kind, of: [
                    *_apart(kind, of, "first"),
                    f"  {of('new')} = fadd {kind} {of('old')}, {of('apart')}",
                ],
            ),
            "  %mean = fdiv float %mean_total, %count",
            *_splat("mean", lanes),
            *_pass(
                "square",
                "mean_done",
                lanes,
                lambda kind, of: [
                    *_apart(kind, of, "first"),
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
                lambda kind, of: [
                    *_apart(kind, of, "first"),
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


def _apart(kind: str, of: Callable[[str], str], name: str) -> list[str]:
    """x at a place less the row's first number."""
    return [
        f"  {of('at')} = getelementptr float, ptr %x, i64 {of('place')}",
        f"  {of('loaded')} = load {kind}, ptr {of('at')}, align 4",
        f"  {of('apart')} = fsub {kind} {of('loaded')}, {_named(name, kind)}",
    ]


def _pass(name: str, before: str, lanes: int, body: Body, sums: bool = True) -> list[str]:
    """A pass over a row: whole turns by vectors, the rest by numbers, and of sums their total, %name_total.

    `body` computes one vector or number from place %place; of sums %new from %old. The pass begins in block `before`
    and ends in block %name_done.
    """
    vector, series = f"<{lanes} x float>", range(UNROLLED)

    def of_vector(n: int) -> Callable[[str], str]:
        return lambda what: f"%{name}_v{what}{n}"

    def of_number(what: str) -> str:
        return f"%{name}_s{what}"

    def each_sum(what: str) -> list[str]:
        edges = [f"[zeroinitializer, %{before}], [{of_vector(n)('new')}, %{name}_turn]" for n in series]
        return [f"  {of_vector(n)(what)} = phi {vector} {edges[n]}" for n in series] if sums else []

    def if_sums(*lines: str) -> list[str]:
        return [line.format(p=f"%{name}", v=vector) for line in lines] if sums else []

    turn = []
    for n in series:
        of = of_vector(n)
        turn += [f"  {of('place')} = add i64 %{name}_i, {n * lanes}", *body(vector, of)]
    by_number = f"phi float [%{name}_all, %{name}_rest], [{of_number('new')}, %{name}_number]"
    return [
        f"  %{name}_any = icmp sgt i64 %turns, 0",
        f"  br i1 %{name}_any, label %{name}_turn, label %{name}_rest",
        f"{name}_turn:",
        f"  %{name}_i = phi i64 [0, %{before}], [%{name}_next, %{name}_turn]",
        *each_sum("old"),
        *turn,
        f"  %{name}_next = add i64 %{name}_i, {UNROLLED * lanes}",
        f"  %{name}_again = icmp slt i64 %{name}_next, %turns",
        f"  br i1 %{name}_again, label %{name}_turn, label %{name}_rest",
        f"{name}_rest:",
        *each_sum("end"),
        *if_sums(
            "  {p}_a = fadd {v} {p}_vend0, {p}_vend1",
            "  {p}_b = fadd {v} {p}_vend2, {p}_vend3",
            "  {p}_c = fadd {v} {p}_a, {p}_b",
            f"  {{p}}_all = call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32(float -0.0, {{v}} {{p}}_c)",
        ),
        f"  %{name}_left = icmp slt i64 %turns, %columns",
        f"  br i1 %{name}_left, label %{name}_number, label %{name}_done",
        f"{name}_number:",
        f"  {of_number('place')} = phi i64 [%turns, %{name}_rest], [%{name}_after, %{name}_number]",
        *if_sums(f"  {of_number('old')} = {by_number}"),
        *body("float", of_number),
        f"  %{name}_after = add i64 {of_number('place')}, 1",
        f"  %{name}_on = icmp slt i64 %{name}_after, %columns",
        f"  br i1 %{name}_on, label %{name}_number, label %{name}_done",
        f"{name}_done:",
        *if_sums(f"  %{name}_total = {by_number}"),
    ]
