"""Row normalisation: counts, settings, the division of the work, and what comes of it on a CPU and on a fake GPU."""

import itertools
from types import SimpleNamespace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.cell_prediction import predict_cell
from roofline.core.dtypes import relative_error
from roofline.core.terms import UserError
from roofline.devices.discovery import open_device
from roofline.operators.about import load_abouts
from roofline.operators.base import Case
from roofline.operators.row_norm.array_row_norm import ArrayRowNorm, CompiledRowNorm, NumpyRowNorm
from roofline.operators.row_norm.cuda_row_norm import (
    MOST_NUMBERS_PER_THREAD,
    MOST_THREADS,
    NaiveRowNorm,
    WelfordRowNorm,
    WelfordRowNormGraph,
    divide_rows,
)
from roofline.operators.row_norm.operator import RowNorm
from roofline.plan import settings

OPERATOR, ABOUT = RowNorm(), load_abouts()["row_norm"]
ON_CPU, ON_GPU = (NumpyRowNorm, CompiledRowNorm), (ArrayRowNorm, NaiveRowNorm, WelfordRowNorm, WelfordRowNormGraph)
# A turn of the compiled loop and multiples of it; and lengths that it leaves to others.
WHOLE_TURNS, OTHER_LENGTHS = (64, 128, 192, 1024, 65_536), (1, 2, 3, 17, 65, 1000, 65_535)
OFFSET = 1e4


def case_of(rows: int, columns: int) -> Case:
    return Case({"rows": rows, "columns": columns}, "fp32")


def cell_of(device, kind, *matrices):
    """An implementation over copies that hold these."""
    copies = [{"x": device.to_device(x), "y": device.empty(x.shape, "fp32")} for x in matrices]
    for copy in copies:
        device.poison(copy["y"])
    return kind.make_prepared(OPERATOR, device, case_of(*matrices[0].shape), {}, copies)


def result_of(device, kind, x):
    return device.to_host(cell_of(device, kind, x).step(None)(0))


def error_of(device, kind, x) -> float:
    return relative_error(result_of(device, kind, x), OPERATOR.reference(case_of(*x.shape), {"x": x}))


def normal(rows: int, columns: int, offset: float = 0.0):
    drawn = numpy.random.default_rng(columns).standard_normal((rows, columns), numpy.float32)
    return drawn + numpy.float32(offset)


@pytest.fixture(scope="module")
def cpu():
    return open_device("cpu")


def test_a_small_matrix_by_hand():
    case = case_of(2, 4)
    assert (OPERATOR.flops(case), OPERATOR.bytes(case), OPERATOR.written_bytes(case)) == (50, 64, 32)
    assert ABOUT.label(case) == "2 x 4"
    x = numpy.array([[1, 2, 3, 4], [5, 5, 5, 5]], numpy.float32)
    expected = [[-3, -1, 1, 3], [0, 0, 0, 0]] / numpy.array([[numpy.sqrt(5)], [1]])
    assert OPERATOR.reference(case, {"x": x}) == pytest.approx(expected)


@pytest.mark.parametrize("wrong", ["many", "0x128", "8 x 8", "1x16777217"])
def test_a_bad_shape_is_one_line(wrong):
    with pytest.raises(UserError) as error:
        settings.complete({"row_norm": {"shapes": ["8x8", wrong]}})
    (line,) = error.value.lines
    assert line.startswith("row_norm.shapes[1]: ") and f"'{wrong}'" in line


ROWS, COLUMNS, MULTIPROCESSORS = st.integers(1, 1 << 24), st.integers(1, 1 << 20), st.integers(1, 200)


@given(ROWS, COLUMNS, MULTIPROCESSORS)
def test_every_number_has_its_thread_and_every_row_its_block(rows, columns, multiprocessors):
    one = divide_rows(rows, columns, multiprocessors)
    assert columns % one.width == 0 and one.width in (1, 2, 4)
    assert one.threads.bit_count() == 1 and one.threads <= MOST_THREADS and one.threads * one.rows <= MOST_THREADS
    assert one.width * one.vectors <= MOST_NUMBERS_PER_THREAD
    assert (one.blocks - 1) * one.rows < rows <= one.blocks * one.rows
    in_registers = one.threads * one.vectors * one.width
    assert in_registers >= columns or in_registers == MOST_THREADS * MOST_NUMBERS_PER_THREAD
    assert one.even == (in_registers == columns)


@pytest.mark.parametrize("kind", ON_CPU)
def test_right_for_every_length_and_number_of_rows_and_a_large_offset(cpu, kind):
    lengths = (*WHOLE_TURNS, *OTHER_LENGTHS) if kind is NumpyRowNorm else WHOLE_TURNS
    for columns in lengths:
        assert error_of(cpu, kind, normal(7, columns)) < 1e-6
    for columns in lengths[-3:]:
        assert error_of(cpu, kind, normal(5, columns, OFFSET)) < 1e-6
    for rows in (1, 3, 1000):
        x = normal(rows, 1088)
        assert error_of(cpu, kind, x) < 1e-6
        assert cell_of(cpu, kind, x).cores(None) <= min(rows, cpu.cores)
    for columns in (*OTHER_LENGTHS, *WHOLE_TURNS):
        assert bool(CompiledRowNorm.unsupported(cpu, case_of(7, columns))) == (columns in OTHER_LENGTHS)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("kind", ON_CPU)
def test_a_row_of_equal_numbers_gives_zeros_and_what_is_not_finite_stays_in_its_row(cpu, kind):
    for columns, value in itertools.product((64, 1088), (0.0, 0.1, -3e7, 1e-30)):
        assert not result_of(cpu, kind, numpy.full((3, columns), value, numpy.float32)).any()
    for bad, place in itertools.product((numpy.nan, numpy.inf, -numpy.inf), (0, 5, 127)):
        x = normal(4, 128)
        x[2, place] = bad
        found = result_of(cpu, kind, x)
        assert numpy.isnan(found[2]).all()
        assert relative_error(found[[0, 1, 3]], OPERATOR.reference(None, {"x": x[[0, 1, 3]]})) < 1e-6


def predicted(kind, rows: int, columns: int, cores: int = 16):
    device = SimpleNamespace(cores=cores, multiprocessors=132, max_threads=2048, last_level_cache_bytes=32 << 20)
    one = kind(OPERATOR, device, case_of(rows, columns))
    constants = {name: constant.value for name, constant in OPERATOR.constants[kind.kind].items()}
    return predict_cell(
        flops=OPERATOR.flops(one.case),
        traffic_bytes=OPERATOR.bytes(one.case),
        tflops=60.0 if kind.kind == "gpu" else 2.0,
        gb_per_s=4800.0 if kind.kind == "gpu" else 150.0,
        costs=one.costs(None).costs(constants),
    )


def test_launches_are_what_small_matrices_wait_for_and_memory_large_ones():
    assert all(predicted(kind, 1024, 128).cpu_time_s > 0 for kind in (*ON_CPU, *ON_GPU)), "each constant is there"
    small, large = (predicted(WelfordRowNormGraph, *shape) for shape in ((1024, 128), (16_384, 1024)))
    assert (small.regime, large.regime) == ("overhead", "memory")
    assert predicted(WelfordRowNorm, 1024, 128).cpu_time_s > 2 * small.cpu_time_s
    assert predicted(ArrayRowNorm, 1024, 128).cpu_time_s > 5 * predicted(WelfordRowNorm, 1024, 128).cpu_time_s
