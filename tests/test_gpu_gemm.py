"""Products of a GPU without one: the shapes, and every dtype's operands, layouts and checks on a cuBLASLt of NumPy."""

import ctypes
import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import ml_dtypes
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_card import open_card

from roofline.core.dtypes import ITEM_BYTES, array_dtype
from roofline.devices import Unsupported
from roofline.measure import search
from roofline.measure.search import Refused
from roofline.operators.gemm import cublaslt
from roofline.operators.gemm import cuda_products as gpu_gemm
from roofline.operators.gemm import operator as gemm
from roofline.operators.gemm.cublaslt import ARITHMETIC, TYPE_OF_OUTPUT, Algorithm
from roofline.operators.gemm.cuda_products import ALIGNED, FAST, OUTPUTS, Shape

DTYPES = tuple(OUTPUTS)
SIZE = 64
EVERY = [(dtype, output, how) for dtype in DTYPES for output, how in OUTPUTS[dtype]]


class CublasLtOfNumPy:
    """Column-major, as cuBLAS is; two algorithms a product."""

    fast_asked: list
    broken = staticmethod(lambda product: product)

    def __init__(self, workspace):
        assert workspace

    def algorithms(self, dtype, m, n, k, layout, output, *, alpha, fast, count):
        assert layout in ARITHMETIC[dtype].layouts and output in TYPE_OF_OUTPUT
        assert fast in (True, False) and (dtype == "fp8_e4m3" or not fast)
        assert alpha == 1 or output == "int8"
        self.fast_asked.append(fast)

        def run(a, b, d, stream):
            left = self._stored(a, dtype, *((m, k) if layout[0] == "N" else (k, m)))
            right = self._stored(b, dtype, *((k, n) if layout[1] == "N" else (n, k)))
            left, right = (left if layout[0] == "N" else left.T), (right if layout[1] == "N" else right.T)
            product = self.broken(alpha * (left.astype(numpy.float64) @ right.astype(numpy.float64)))
            if product is None:
                return
            if output in ("int8", "int32"):
                limits = numpy.iinfo(array_dtype(output))
                product = numpy.clip(numpy.rint(product), limits.min, limits.max)
            self._stored(d, output, m, n)[...] = product.astype(array_dtype(output))

        return [Algorithm(rank, f"algorithm {10 * rank}", run) for rank in range(min(2, count))]

    @staticmethod
    def _stored(address, dtype, rows, columns):
        kind = array_dtype(dtype)
        memory = (ctypes.c_char * (rows * columns * kind.itemsize)).from_address(address)
        return numpy.frombuffer(memory, kind).reshape((rows, columns), order="F")


@pytest.fixture
def lt(monkeypatch):
    class Fresh(CublasLtOfNumPy):
        fast_asked: list = []  # noqa: RUF012 - one for each test

    monkeypatch.setattr(gpu_gemm, "CublasLt", Fresh)
    return Fresh


@pytest.fixture
def device(monkeypatch, lt):
    return open_card(monkeypatch)


def break_products(monkeypatch, lt, how):
    monkeypatch.setattr(lt, "broken", staticmethod(how))


# ---------------------------------------------------------------------------------------------- shapes


def test_the_shapes_of_an_h200():
    assert gpu_gemm.shapes(4096, 132) == [
        Shape(4096, 4096, 4096),
        Shape(4096, 4096, 16384),
        Shape(2048, 4096, 13312),
        Shape(3072, 3072, 3072),
        Shape(2048, 2048, 16384),
        Shape(2048, 2048, 4096),
        Shape(8192, 8192, 8192),
        Shape(2112, 2048, 2048),
        Shape(2112, 2048, 4096),
        Shape(4224, 4096, 4096),
        Shape(8448, 4096, 8192),
    ]


@given(size=st.integers(16, 20000), multiprocessors=st.integers(1, 200))
def test_shapes_are_aligned_but_for_the_labs_own_size_and_each_is_there_once(size, multiprocessors):
    found = gpu_gemm.shapes(size, multiprocessors)
    assert found[0] == (size, size, size)
    assert len(set(found)) == len(found)
    for shape in found:
        assert all(side == size or (side % ALIGNED == 0 and side >= ALIGNED) for side in shape)


@pytest.mark.parametrize("multiprocessors", [16, 40, 58, 82, 84, 108, 114, 128, 132, 142, 148, 170])
def test_a_row_of_tiles_is_never_a_wave_of_its_own(multiprocessors):
    """Rounded up, 142 multiprocessors would have 2304 rows instead of 2272, and a nearly empty second wave."""
    found = gpu_gemm.shapes(4096, multiprocessors)
    for rows, n, k in gpu_gemm.FULL_WAVES:
        lengths = {shape.m for shape in found if shape[1:] == (4096 * n, 4096 * k)}
        assert any(rows * multiprocessors - ALIGNED < m <= rows * multiprocessors for m in lengths)


def test_of_a_small_size_what_falls_together_is_one_shape():
    found = gpu_gemm.shapes(64, 1)
    assert found.count(Shape(64, 64, 64)) == 1 and len(found) < len(gpu_gemm.SHAPES) + len(gpu_gemm.FULL_WAVES)


@given(
    size=st.integers(16, 20000),
    most_flops=st.floats(1e6, 1e15),
    free=st.integers(10**6, 10**11),
    dtype=st.sampled_from(DTYPES),
)
def test_what_fits_is_within_both_limits_or_the_labs_square_alone(size, most_flops, free, dtype):
    class Card:
        multiprocessors = 132

        class identity:
            memory_free_bytes = free

    found = gpu_gemm._fitting(Card, dtype, size, most_flops)
    result = max(ITEM_BYTES[output] for output, _ in OUTPUTS[dtype])

    def fits(m, n, k):
        return ((m + n) * k * ITEM_BYTES[dtype] + m * n * result) * 4 <= free and 2 * m * n * k <= most_flops

    every = gpu_gemm.shapes(size, 132)
    within = [shape for shape in every if fits(*shape)]
    assert found == (within or every[:1])


# ---------------------------------------------------------------------------------------------- scales and blocks


@pytest.mark.parametrize("output", ["fp32", "bf16", "int32", "fp64"])
def test_only_int8_results_are_scaled(output):
    assert gpu_gemm._alpha(output, 4096) == 1


@pytest.mark.parametrize("k", [64, 1000, 4096, 16384])
def test_scaled_int8_results_are_as_spread_as_the_operands(k):
    random = numpy.random.default_rng(k)
    a, b = (numpy.clip(numpy.rint(32 * random.standard_normal((200, k))), -127, 127) for _ in range(2))
    result = gpu_gemm._alpha("int8", k) * (a @ b.T)
    assert result.std() == pytest.approx(32, rel=0.05)
    assert (abs(result) > 127).mean() < 1e-3


@given(length=st.integers(4, 100_000), width=st.integers(1, 64))
def test_blocks_cover_both_ends_and_what_is_between_and_never_overlap(length, width):
    blocks = gpu_gemm._spread(length, width)
    assert len(blocks) == gpu_gemm.SAMPLES
    assert blocks[0].start == 0 and blocks[-1].stop == length
    assert {block.stop - block.start for block in blocks} == {min(width, length // 4)}
    for one, following in pairwise(blocks):
        assert one.stop <= following.start
        assert following.start - one.stop <= -(-length // 3), "no gap is wider than a third"


@given(st.data())
def test_a_block_is_that_part_of_the_matrix(data):
    rows, columns = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20))
    r, c = (slice(*sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in (rows, columns))
    kind = numpy.dtype(data.draw(st.sampled_from([numpy.float64, ml_dtypes.bfloat16, numpy.int8])))
    with pytest.MonkeyPatch.context() as patch:
        xp = open_card(patch).xp
        values = xp.asarray(numpy.arange(rows * columns).astype(kind))
        matrix = numpy.asarray(values).reshape(rows, columns)
        assert numpy.array_equal(gpu_gemm._block(values, kind, rows, columns, r, c), matrix[r, c])
        assert numpy.array_equal(gpu_gemm._block(values, kind, rows, columns, r), matrix[r])


# ---------------------------------------------------------------------------------------------- operands


@pytest.mark.parametrize("dtype", DTYPES)
def test_operands_are_normal_numbers_of_their_dtype(device, dtype):
    values = gpu_gemm.operand(device, dtype, 100_001, seed=1)
    found = device.to_host(values).view(array_dtype(dtype)).astype(numpy.float64)
    assert values.size - 100_001 in ((1,) if dtype in ("fp8_e4m3", "int8") else (0,)), "fp8 is converted in pairs"
    scale = 32 if dtype == "int8" else 1
    assert found.mean() == pytest.approx(0, abs=0.02 * scale) and found.std() == pytest.approx(scale, rel=0.02)
    other = device.to_host(gpu_gemm.operand(device, dtype, 100_001, seed=2))
    assert not numpy.array_equal(device.to_host(values), other)


def test_fp64_operands_have_few_digits_or_all(device):
    """With few, the power limit lets the product run at full rate for a while."""
    short, full = (
        device.to_host(gpu_gemm.operand(device, "fp64", 1000, seed=1, digits=digits))
        for digits in (gpu_gemm.SHORT, gpu_gemm.FULL)
    )
    assert short.dtype == full.dtype == numpy.float64
    assert numpy.array_equal(short, short.astype(numpy.float32)) and not numpy.array_equal(full, full.astype("float32"))
    assert "24 significant bits" in gpu_gemm.inputs("fp64")
    assert gpu_gemm.inputs("fp64", gpu_gemm.FULL) == "standard normal numbers, rounded to fp64"


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_inputs_are_is_told_with_each_product(device, dtype):
    (workload, *_) = gpu_gemm.of_shape(device, dtype, {"m": 64, "n": 64, "k": 64}, seed=1)
    assert workload.inputs == gpu_gemm.inputs(dtype)
    assert dtype in workload.inputs or dtype in ("fp64", "int8")


def test_pieces_of_an_operand_are_each_of_their_own_numbers(monkeypatch, device):
    """Of 2^26 numbers each on a card."""
    drawn, normal = [], device.normal

    def few(shape, dtype, seed):
        drawn.append((shape[0], seed))
        return normal((2,), dtype, seed)

    monkeypatch.setattr(device, "normal", few)
    monkeypatch.setattr(device, "kernel", lambda *names: lambda grid, block, arguments: None)
    gpu_gemm.operand(device, "int8", (1 << 26) + 3, seed=5)
    assert [count for count, _ in drawn] == [1 << 26, 4] and len({seed for _, seed in drawn}) == 2


# ---------------------------------------------------------------------------------------------- products


def test_every_dtype_has_an_arithmetic_and_a_tolerance():
    assert set(OUTPUTS) == set(ARITHMETIC) == set(gemm.TOLERANCE)
    assert {output for ways in OUTPUTS.values() for output, _ in ways} <= set(TYPE_OF_OUTPUT)


@pytest.mark.parametrize(("dtype", "output", "how"), EVERY)
def test_every_output_and_layout_is_right(device, lt, dtype, output, how):
    """On shapes of three different sides: a transposed one would not pass."""
    products = gpu_gemm.LtProducts(device, dtype, [Shape(64, 128, 192), Shape(192, 64, 128)], seed=1)
    found = list(products.candidates(output, how))
    layouts = ARITHMETIC[dtype].layouts
    assert [(w.product.shape["m"], w.product.layout) for w in found] == [
        (m, layout) for _ in range(2) for m in (64, 192) for layout in layouts
    ], "the first choice of every shape and layout, then every second choice"
    for workload in found:
        check = workload.check()
        assert check.error <= check.tolerance == gemm.TOLERANCE[dtype]
        assert check.compared == "16 x 64 results against float64" or workload.product.shape["n"] != 64
        assert workload.flops == 2 * 64 * 128 * 192
        assert (workload.product.output, workload.product.accumulation) == (output, how)
        assert workload.clock_mhz() is None
    assert set(lt.fast_asked) == {how == FAST}


@pytest.mark.parametrize(("dtype", "output", "how"), EVERY)
@pytest.mark.parametrize(
    "wrong",
    [
        lambda product: None,  # nothing is written, and what stood there is right
        lambda product: 0 * product,
        lambda product: 1.05 * product,
        lambda product: numpy.where(numpy.arange(product.shape[0])[:, None] == product.shape[0] - 1, 0, product),
    ],
    ids=["nothing", "zero", "5 % more", "without its last row"],
)
def test_a_wrong_product_is_found(monkeypatch, device, lt, dtype, output, how, wrong):
    workload = next(gpu_gemm.LtProducts(device, dtype, [Shape(64, 128, 192)], seed=1).candidates(output, how))
    workload.check()
    break_products(monkeypatch, lt, wrong)
    with pytest.raises(ArithmeticError, match=f"{dtype} product 64 x 128 x 192 [NT]{{2}} by cuBLASLt"):
        workload.check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_labs_product_is_the_square(device, dtype):
    workload = device.lab_product(dtype, SIZE, seed=1)
    by_cupy = dtype in gpu_gemm.BY_CUPY
    assert workload.product.library == ("cupy.matmul" if by_cupy else "cuBLASLt")
    assert workload.product.shape == {"m": SIZE, "n": SIZE, "k": SIZE} and workload.flops == 2 * SIZE**3
    assert workload.product.output == OUTPUTS[dtype][0][0]
    assert workload.check().error <= gemm.TOLERANCE[dtype] or dtype == "fp16"


def offer(monkeypatch, lt, whether):
    """Have cuBLASLt offer products of a dtype and size where `whether` says so."""
    algorithms = lt.algorithms

    def some(self, dtype, m, *others, **options):
        return algorithms(self, dtype, m, *others, **options) if whether(dtype, m) else []

    monkeypatch.setattr(lt, "algorithms", some)


LT_ALONE = [dtype for dtype in DTYPES if dtype not in gpu_gemm.BY_CUPY]


@pytest.mark.parametrize("dtype", LT_ALONE)
def test_where_cublaslt_has_none_of_that_size_the_setting_is_named(monkeypatch, device, lt, dtype):
    offer(monkeypatch, lt, lambda dtype, m: m % 16 == 0)
    with pytest.raises(ValueError, match=rf"^peak_flops.size: 72; {dtype} products need multiples of 16$"):
        device.lab_product(dtype, 72, seed=1)
    assert list(gpu_gemm.of_shape(device, dtype, {"m": 72, "n": 72, "k": 72}, seed=1)) == []
    device.lab_product(dtype, 80, seed=1).check()


@pytest.mark.parametrize("dtype", LT_ALONE)
@pytest.mark.parametrize("size", [64, 72])
def test_where_cublaslt_has_none_of_any_size_the_card_has_no_such_ceiling(monkeypatch, device, lt, dtype, size):
    """No other setting would help."""
    offer(monkeypatch, lt, lambda dtype, m: False)
    with pytest.raises(Unsupported, match=rf"^cuBLASLt offers no {dtype} product on this card$"):
        device.lab_product(dtype, size, seed=1)


def test_none_of_a_size_that_is_a_multiple_is_the_cards_lack(monkeypatch, device, lt):
    offer(monkeypatch, lt, lambda dtype, m: m == ALIGNED)
    with pytest.raises(Unsupported, match="cuBLASLt offers no int8 product"):
        device.lab_product("int8", 80, seed=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_candidates_begin_with_the_labs_library_and_hold_to_the_limit(device, dtype):
    most_flops = 2 * 128 * 128 * 512
    found = list(device.peak_candidates(dtype, 128, most_flops, seed=3))
    assert found[0].product.library == ("cupy.matmul" if dtype in gpu_gemm.BY_CUPY else "cuBLASLt")
    assert all(workload.flops <= most_flops for workload in found)
    assert len({workload.flops for workload in found}) > 2
    assert {(w.product.output, w.product.accumulation) for w in found[1:]} == {OUTPUTS[dtype][0]}


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_that_was_found_is_found_again(device, dtype):
    for workload in list(device.peak_candidates(dtype, 64, 2 * 64**3, seed=3))[:4]:
        again = device.peak_workload(dtype, 64, workload.product, seed=5)
        assert (again.product, again.flops) == (workload.product, workload.flops)


@pytest.mark.parametrize("dtype", DTYPES)
def test_beside_a_ceiling_stand_its_other_outputs_on_the_same_shape(device, dtype):
    lab, *others = gpu_gemm.candidates(device, dtype, 64, 2 * 64**3, seed=3)
    assert list(device.beside(dtype, lab.product, seed=7)) == [] or lab.product.library == "cuBLASLt"
    found = list(device.beside(dtype, others[0].product, seed=7))
    on_other_inputs = OUTPUTS[dtype][:1] if dtype == "fp64" else []
    expected = on_other_inputs + OUTPUTS[dtype][1:]
    assert [(w[0].product.output, w[0].product.accumulation) for w in found] == expected
    assert all(w[0].inputs != others[0].inputs for w in found[: len(on_other_inputs)])
    for workload in (one for workloads in found for one in workloads):
        assert workload.product.shape == others[0].product.shape
        workload.check()


def test_tf32_is_compared_with_the_same_product_in_fp32(device):
    workload = device.product_of_shape("fp32", {"m": 64, "n": 128, "k": 192})
    assert (workload.product.accumulation, workload.flops) == ("fp32", 2 * 64 * 128 * 192)
    workload.check()


def test_and_where_cublaslt_has_none_in_fp32_with_the_array_librarys_square(monkeypatch, device, lt):
    offer(monkeypatch, lt, lambda dtype, m: dtype != "fp32")
    workload = device.product_of_shape("fp32", {"m": 64, "n": 128, "k": 192})
    assert (workload.product.library, workload.flops) == ("cupy.matmul", 2 * 64**3)
    workload.check()


# ---------------------------------------------------------------------------------------------- cuBLASLt's bindings


class Bindings(ModuleType):
    """nvmath's bindings of a cuBLASLt that offers algorithms of these states, multiplies with those that it does not
    refuse, and does not know these attributes of one."""

    class cuBLASLtError(Exception):
        pass

    matmul_heuristic_result_dtype = numpy.dtype(
        [
            ("algo", "u8", 8),
            ("workspace_size", "u8"),
            ("state", "i4"),
            ("waves_count", "f4"),
            ("reserved", "i4", 4),
        ]
    )

    def __init__(self, states=(0, 0), refused=(), unknown=()):
        super().__init__("cublasLt")
        self.ran, self._states, self._refused, self._unknown = [], states, refused, unknown
        self.MatmulDescAttribute = self.MatmulAlgoConfigAttribute = self
        self.MatmulPreferenceAttribute = SimpleNamespace(MAX_WORKSPACE_BYTES=1)

    def __getitem__(self, attribute):
        return attribute

    def __getattr__(self, name):
        if name.endswith(("create", "destroy", "set_attribute")):
            return lambda *given: 1
        raise AttributeError(name)

    def MatmulHeuristicResult(self, count):
        results = numpy.zeros(count, self.matmul_heuristic_result_dtype)
        return SimpleNamespace(ptr=results.ctypes.data, results=results)

    def matmul_algo_get_heuristic(self, handle, description, a, b, c, d, preference, count, results, returned):
        size = self.matmul_heuristic_result_dtype.itemsize
        memory = (ctypes.c_char * (size * count)).from_address(results)
        offered = numpy.frombuffer(memory, self.matmul_heuristic_result_dtype)
        for place, state in enumerate(self._states[:count]):
            offered[place]["algo"], offered[place]["state"] = 10 + place, state
        ctypes.c_int32.from_address(returned).value = min(count, len(self._states))

    @staticmethod
    def _number(algorithm):
        return ctypes.c_uint64.from_address(algorithm).value

    def matmul_algo_config_get_attribute(self, algorithm, attribute, value, size, written):
        if attribute in self._unknown:
            raise self.cuBLASLtError("CUBLAS_STATUS_INVALID_VALUE")
        if attribute == "ID":
            ctypes.c_int32.from_address(value).value = self._number(algorithm)

    def matmul(self, handle, description, alpha, a, a_layout, b, b_layout, beta, *others):
        c, _, d, _, algorithm, *_ = others
        number = self._number(algorithm)
        if number in self._refused:
            raise self.cuBLASLtError("CUBLAS_STATUS_NOT_SUPPORTED")
        self.ran.append((number, a, b, c, d))


def offered_by(monkeypatch, bindings):
    for name, module in {
        "nvmath": ModuleType("nvmath"),
        "nvmath.bindings": ModuleType("nvmath.bindings"),
        "nvmath.bindings.cublasLt": bindings,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["nvmath.bindings"].cublasLt = bindings
    lt = cublaslt.CublasLt(workspace=1)
    return lt.algorithms("fp16", 64, 128, 192, "TN", "fp16", alpha=1.0, fast=False, count=8)


@pytest.mark.parametrize(
    ("states", "left"), [((0, 0, 0), [10, 11, 12]), ((0, 15, 0), [10, 12]), ((15, 7), []), ((), [])]
)
def test_an_algorithm_of_which_the_library_says_that_it_cannot_run_is_left_out(monkeypatch, states, left):
    bindings = Bindings(states)
    found = offered_by(monkeypatch, bindings)
    assert [one.rank for one in found] == list(range(len(left)))
    for one in found:
        one.run(1, 2, 3, 0)
    assert bindings.ran == [(number, 1, 2, 3, 3) for number in left]


def test_an_algorithm_that_is_refused_as_it_runs_says_so_in_one_line(monkeypatch):
    first, second = offered_by(monkeypatch, Bindings(refused=[10]))
    with pytest.raises(Refused, match=r"^fp16 64 x 128 x 192 TN: CUBLAS_STATUS_NOT_SUPPORTED$"):
        first.run(1, 2, 3, 0)
    second.run(1, 2, 3, 0)


def test_what_an_older_library_does_not_know_of_an_algorithm_is_not_in_its_name(monkeypatch):
    known, *_ = offered_by(monkeypatch, Bindings())
    assert known.name == "algorithm 10, tile 0, stages 0, cluster_shape 0, splitk 0"
    older, *_ = offered_by(monkeypatch, Bindings(unknown=["CLUSTER_SHAPE_ID", "STAGES_ID"]))
    assert older.name == "algorithm 10, tile 0, splitk 0"


def test_a_search_passes_over_what_cublaslt_refuses(monkeypatch, device, lt):
    """And names it."""
    algorithms = lt.algorithms

    def refuse(*pointers):
        raise Refused("fp16: CUBLAS_STATUS_NOT_SUPPORTED")

    def with_one_refused(self, *shape, **options):
        first, second = algorithms(self, *shape, **options)
        return [Algorithm(first.rank, first.name, refuse), second]

    monkeypatch.setattr(lt, "algorithms", with_one_refused)
    workloads = list(gpu_gemm.of_shape(device, "fp16", {"m": 64, "n": 64, "k": 64}, seed=1))
    tried, searched = search.try_all(device, workloads, lambda workload: workload.step, 60)
    layouts = len(ARITHMETIC["fp16"].layouts)
    assert (searched.offered, searched.tried) == (2 * layouts, layouts)
    assert searched.refused == ["fp16: CUBLAS_STATUS_NOT_SUPPORTED"] * layouts
    assert all("choice 2" in workload.product.algorithm for workload, _ in tried)
