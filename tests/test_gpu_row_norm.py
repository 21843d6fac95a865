"""Row normalisation on a real card (pytest -m gpu): right for every length of a row, and as fast as what it claims."""

import numpy
import pytest
from fake_gpu import real_gpu
from test_row_norm import OFFSET, OPERATOR, cell_of, error_of, normal, result_of

from roofline.core.dtypes import relative_error
from roofline.operators.row_norm.array_row_norm import ArrayRowNorm
from roofline.operators.row_norm.cuda_row_norm import NaiveRowNorm, WelfordRowNorm, WelfordRowNormGraph

pytestmark = pytest.mark.gpu

KINDS = (ArrayRowNorm, NaiveRowNorm, WelfordRowNorm, WelfordRowNormGraph)
# Around a vector, a warp's and a block's registers, and beyond them; of accesses of 4, 8 and 16 bytes.
LENGTHS = (1, 2, 3, 4, 5, 7, 20, 31, 32, 33, 126, 127, 128, 129, 130, 1000, 1023, 1024, 1025, 4096, 4098)
LENGTHS += (16_384, 16_388, 32_767, 32_768, 32_772, 65_535, 65_536)


@pytest.fixture(scope="module")
def device():
    return real_gpu()


@pytest.mark.parametrize("kind", KINDS)
def test_right_for_every_length_of_a_row_the_configs_shapes_and_a_large_offset(device, kind):
    shapes = [(min(rows, 1 + (1 << 23) // columns), columns) for columns in LENGTHS for rows in (1, 3, 133, 3000)]
    shapes += [(1024, 128), (4096, 256), (8192, 512), (16_384, 1024)]
    shapes += [(133, columns, OFFSET) for columns in (3, 129, 1024, 65_535)]
    for shape in shapes:
        assert error_of(device, kind, normal(*shape)) < 1e-5, shape


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf, -numpy.inf])
@pytest.mark.parametrize("columns", [1, 70, 128, 1023, 40_000])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_stays_in_its_row(device, kind, columns, bad):
    x = normal(40, columns)
    for row, place in ((3, 0), (17, columns // 2), (39, columns - 1)):
        x[row, place] = bad
    found, spoilt = result_of(device, kind, x), [3, 17, 39]
    assert numpy.isnan(found[spoilt]).all()
    rest = numpy.delete(numpy.arange(40), spoilt)
    assert relative_error(found[rest], OPERATOR.reference(None, {"x": x[rest]})) < 1e-5


def test_a_launch_in_a_graph_may_read_what_the_one_before_wrote(device):
    first, second = normal(2000, 128), normal(2000, 128, 5.0)
    x, between, y = (device.to_device(a) for a in (first, second, numpy.empty_like(first)))
    cell = cell_of(device, WelfordRowNormGraph, first)
    sizes = cell.arguments[0][2:]
    calls = [(between, y, *sizes), (x, between, *sizes), (between, y, *sizes)]
    graph = device.capture_launches(cell.kernel, (cell.division.blocks,), (cell.threads,), calls, 0)
    expected = OPERATOR.reference(None, {"x": first})
    for _ in range(20):
        between[:] = device.to_device(second)
        device.poison(y)
        graph.launch(device.stream)
        assert relative_error(device.to_host(y), expected) < 1e-5
