"""Decode attention in NumPy, by both of its implementations that the CPU can run, against loops of our own."""

import itertools
import math
import tracemalloc

import ml_dtypes
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline import devices
from roofline.core.dtypes import array_dtype
from roofline.devices.cpu.memory import Workers
from roofline.operators.decode_attention import numpy_cores as attention_numpy
from roofline.operators.decode_attention import operator as attention
from roofline.operators.decode_attention.eager import Eager
from roofline.operators.decode_attention.numpy_cores import AllCores
from roofline.operators.implementations import make_cell

CLASSES = [Eager, AllCores]
DTYPES = ["fp32", "fp16", "bf16"]
# Of a head, and of a block: AllCores rounds the result once, by half a unit in the last place at most. Eager also
# rounds the scaled query.
CORE_TOLERANCE = {
    AllCores: {"fp32": 2e-6, "fp16": 2.0**-11, "bf16": 2.0**-8},
    Eager: {"fp32": 2e-6, "fp16": 2.0**-9, "bf16": 2.0**-6},
}
BLOCK_TOLERANCE = {
    AllCores: {"fp32": 2e-6, "fp16": 2.0**-11, "bf16": 2.0**-8},
    Eager: {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2},
}


@pytest.fixture(scope="module")
def device():
    return devices.open_device("cpu")


@pytest.fixture(params=CLASSES, ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


def loops(query, keys, values):
    """Softmax(K q / sqrt(d)) V in float64, a loop a sequence and head and with the sums written out.

    query [batch, heads, d], keys and values [batch, kv_heads, S, d]. Returns [batch, heads, d].
    """
    query, keys, values = (numpy.asarray(array).astype(numpy.float64) for array in (query, keys, values))
    found = numpy.empty_like(query)
    group = query.shape[1] // keys.shape[1]
    for b, h in itertools.product(*map(range, query.shape[:2])):
        scores = [math.fsum(key * query[b, h]) / math.sqrt(query.shape[2]) for key in keys[b, h // group]]
        largest = max(scores)
        weights = [math.exp(score - largest) for score in scores]
        total = math.fsum(weights)
        found[b, h] = numpy.einsum("s,sd->d", numpy.array(weights) / total, values[b, h // group])
    return found


def cell_of(device, kind=AllCores, dtype="fp32", batch=1, seq_len=17, heads=2, head_size=8, seed=3, **options):
    shape = attention.Shape(batch, heads, options.pop("kv_heads", heads), head_size, seq_len)
    size = shape.hidden_size
    random = numpy.random.default_rng(seed)
    layer = {
        "query": random.standard_normal((size, size), numpy.float32) / math.sqrt(size),
        "query_bias": random.standard_normal(size, numpy.float32),
        "output": random.standard_normal((size, size), numpy.float32) / math.sqrt(size),
        "output_bias": random.standard_normal(size, numpy.float32),
    }
    hidden = random.standard_normal((batch, size), numpy.float32)
    return kind(device, shape, dtype, layer, hidden, seed=seed, **({"copies": 1} | options))


def with_query(cell, query):
    """The cell, of a query [batch, heads, d] that is not of its projection."""
    cell.query = query.astype(cell.query.dtype)
    if isinstance(cell, Eager):
        cell.scaled_query = cell.columns(cell.query)
    else:
        cell.columns = cell._columns(cell.query.astype(numpy.float32))
    return cell


def distance(result, expected):
    return numpy.linalg.norm(result.astype(numpy.float64) - expected) / numpy.linalg.norm(expected)


def worst_of(cell):
    return attention.worst_head(cell.step("core")(0).astype(numpy.float64), loops(cell.query, *cell.caches[0]))


# ---------------------------------------------------------------------------------------------- right results

SHAPES = [(1, 17), (3, 17), (1, 1), (3, 1), (3, 128)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "seq_len"), SHAPES)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_core_against_loops(device, kind, dtype, batch, seq_len, kv_heads):
    cell = cell_of(device, kind, dtype, batch, seq_len, heads=4, kv_heads=kv_heads)
    result = cell.step("core")(0)
    assert result.shape == (batch, 4, 8) and result.dtype == cell.caches[0][0].dtype
    assert worst_of(cell) < CORE_TOLERANCE[type(cell)][dtype]
    assert cell.check("core")[0].error < CORE_TOLERANCE[type(cell)][dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_heads_of_models(device, kind, dtype, head_size, kv_heads):
    cell = cell_of(device, kind, dtype, batch=2, seq_len=301, heads=4, kv_heads=kv_heads, head_size=head_size)
    assert worst_of(cell) < CORE_TOLERANCE[type(cell)][dtype]
    for scope in cell.scopes:
        check, _ = cell.check(scope)
        assert check.error < check.tolerance == cell.tolerance[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "seq_len"), SHAPES)
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_block_against_loops(device, kind, dtype, batch, seq_len, kv_heads):
    """Query projection, scaled by 1 / sqrt(head size), heads side by side, attention, output projection."""
    cell = cell_of(device, kind, dtype, batch, seq_len, kv_heads=kv_heads)
    weights = {name: array.astype(numpy.float64) for name, array in cell.layers[0].items()}
    projected = numpy.einsum("bi,io->bo", cell.hidden.astype(numpy.float64), weights["query"]) + weights["query_bias"]
    attended = loops(numpy.stack([projected[:, h * 8 : (h + 1) * 8] for h in range(2)], axis=1), *cell.caches[0])
    joined = numpy.concatenate([attended[:, h] for h in range(2)], axis=1)
    expected = numpy.einsum("bi,io->bo", joined, weights["output"]) + weights["output_bias"]
    result = cell.step("block")(0)
    assert result.shape == (batch, 16) and result.dtype == cell.caches[0][0].dtype
    assert distance(result, expected) < BLOCK_TOLERANCE[kind][dtype]
    assert cell.check("block")[0].error < BLOCK_TOLERANCE[kind][dtype]


def attend(query, keys, values):
    return attention.attend(numpy, query, keys, values)


@settings(deadline=None, max_examples=50)
@given(*[st.integers(1, most) for most in (3, 3, 3, 40, 12)], st.integers(0, 99))
def test_attend_whatever_the_shape(batch, kv_heads, group, seq_len, head_size, seed):
    random = numpy.random.default_rng(seed)
    query = random.standard_normal((batch, kv_heads * group, head_size))
    keys, values = random.standard_normal((2, batch, kv_heads, seq_len, head_size))
    expected = pytest.approx(loops(query, keys, values), rel=1e-11, abs=1e-13)
    assert attention.reference(query, keys, values) == expected
    columns = (query / math.sqrt(head_size)).reshape(batch, kv_heads, group, head_size).swapaxes(-1, -2)
    assert attend(columns, keys, values).reshape(query.shape) == expected


def with_workers(device, monkeypatch, cores):
    monkeypatch.setattr(device, "cores", cores)
    monkeypatch.setattr(device, "_workers", Workers(cores))


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 4),
    st.tuples(*[st.integers(1, most) for most in (3, 3, 3, 200)], st.integers(4, 6)),
    st.sampled_from(DTYPES),
    st.sampled_from([1, 64, 1 << 20]),
    st.sampled_from([16 * 40, 1 << 20]),
    st.sampled_from([1000, 1 << 20]),
)
def test_any_number_of_cores_parts_and_pieces_gives_the_right_result(
    device, cores, sizes, dtype, piece, near_bytes, products
):
    """Rows are cut for the cores, for scores that are to stay in a cache, for products that are to be small, and for
    what is widened at once."""
    batch, kv_heads, group, seq_len, half_depth = sizes
    with pytest.MonkeyPatch.context() as monkeypatch:
        with_workers(device, monkeypatch, cores)
        monkeypatch.setattr(device, "l2_bytes", near_bytes)
        monkeypatch.setattr(attention_numpy, "FEWEST_ROWS", 1)
        monkeypatch.setattr(attention_numpy, "MOST_PRODUCTS", products)
        heads = {"heads": kv_heads * group, "kv_heads": kv_heads, "head_size": 2 * half_depth}
        cell = cell_of(device, AllCores, dtype, batch, seq_len, **heads, cores=cores)
        cell.piece_items = max(piece, 2 * half_depth)
        assert worst_of(cell) < cell.tolerance[dtype]
        for scope in cell.scopes:
            cell.check(scope)
        assert numpy.array_equal(cell.step("core")(0), cell.step("core")(1))


@given(st.integers(1, 300), st.integers(1, 5000), st.integers(1, 70))
def test_work_is_divided_evenly(units, rows, cores):
    groups, parts = attention_numpy.division(units, rows, cores)
    assert 1 <= groups <= units and groups * parts <= cores
    assert parts == 1 or rows // parts >= attention_numpy.FEWEST_ROWS
    most = -(-units // groups) * -(-rows // parts)
    assert most <= -(-units // min(units, cores)) * rows  # no worse than whole units
    if units * rows >= 1000 * cores and rows >= 64 * cores:
        assert most <= 2 * units * rows / cores


@given(st.integers(1, 99), st.integers(1, 99))
def test_cuts_are_all_of_it_once(length, count):
    found = [list(range(length)[cut]) for cut in attention_numpy.cuts(length, count)]
    assert list(itertools.chain(*found)) == list(range(length))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@given(*[st.integers(1, most) for most in (40, 40, 12, 5000)])
def test_pieces_are_all_of_it_once(units, rows, depth, items):
    seen = numpy.zeros((units, rows), int)
    for piece in attention_numpy.pieces(units, rows, depth, items):
        seen[piece] += 1
        assert seen[piece].size * depth <= max(items, depth)
    assert (seen == 1).all()


def test_fewer_cores_where_they_are_faster(device, monkeypatch):
    """All of them first, then halves, until fewer are clearly slower; a little faster is not worth fewer."""
    with_workers(device, monkeypatch, 8)
    cell = cell_of(device)
    for seconds, fastest, tried in [
        ({8: 4, 4: 3, 2: 2, 1: 1}, 1, [8, 4, 2, 1]),
        ({8: 1, 4: 2}, 8, [8, 4]),
        ({8: 1, 4: 0.95, 2: 1.6}, 8, [8, 4, 2]),
        ({8: 3, 4: 1, 2: 2}, 4, [8, 4, 2]),
        ({8: 1, 4: 1.2, 2: 0.5, 1: 0.4}, 1, [8, 4, 2, 1]),
    ]:
        counts = []
        monkeypatch.setattr(device, "step_times", lambda count, steps, seconds=seconds: [seconds[count]] * steps)
        assert cell._fastest(lambda count, counts=counts: counts.append(count) or count) == fastest
        assert counts == tried


# ---------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_number_is_widened(dtype):
    """All 65536 of them; fp16 is scaled, exactly. Those that are not finite are told by their piece."""
    as_dtype = array_dtype(dtype)
    numbers = numpy.arange(65536, dtype=numpy.uint16).view(as_dtype)
    scale = numpy.float32(attention_numpy.FP16_SCALE if dtype == "fp16" else 1)
    with numpy.errstate(invalid="ignore"):
        for piece in (numbers[numpy.isfinite(numbers)], numbers):
            found = attention_numpy.widened(piece, numpy.empty(piece.size, numpy.float32)) * scale
            assert numpy.array_equal(found, piece.astype(numpy.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_keys_give_the_mean_of_the_values(device, kind, dtype):
    cell = cell_of(device, kind, dtype, seq_len=64)
    keys, values = cell.caches[0]
    keys[:] = 1
    mean = values.astype(numpy.float64).mean(axis=2)
    assert attention.worst_head(cell.step("core")(0).astype(numpy.float64), mean) < CORE_TOLERANCE[type(cell)][dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_one_dominant_score_gives_its_value(device, kind, dtype, kv_heads):
    cell = with_query(cell_of(device, kind, dtype, seq_len=33, kv_heads=kv_heads), numpy.ones((1, 2, 8)))
    keys, values = cell.caches[0]
    keys[:] = 0
    keys[:, :, 20] = 100
    expected = numpy.repeat(values[:, :, 20], 2 // kv_heads, axis=1)
    assert numpy.array_equal(cell.step("core")(0), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("cores", [1, 3])
def test_scores_in_the_thousands_do_not_overflow(device, monkeypatch, kind, dtype, sign, cores):
    """exp(8000) is infinite in any dtype: the largest score is taken off before. What a score is rounded by, 2^-24 of
    thousands, is what the weights are wrong by."""
    with_workers(device, monkeypatch, cores)
    monkeypatch.setattr(attention_numpy, "FEWEST_ROWS", 1)
    options = {"cores": cores} if kind is AllCores else {}
    cell = with_query(cell_of(device, kind, dtype, seq_len=33, **options), numpy.full((1, 2, 8), math.sqrt(8)))
    keys, _ = cell.caches[0]
    keys[:] = (sign * 1000 + keys.astype(numpy.float32)).astype(keys.dtype)
    assert numpy.isfinite(cell.step("core")(0).astype(numpy.float32)).all()
    assert worst_of(cell) < 4e-3 + CORE_TOLERANCE[type(cell)][dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("scope", attention.SCOPES)
def test_a_nan_in_the_cache_shows(device, kind, dtype, scope, which):
    cell = cell_of(device, kind, dtype, batch=3)
    cell.caches[0][which][2, 1, 5, 3] = numpy.nan
    assert numpy.isnan(cell.step(scope)(0)[2].astype(numpy.float32)).any()
    with pytest.raises(ArithmeticError):
        cell.check(scope)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("infinite", [numpy.inf, -numpy.inf])
@pytest.mark.parametrize("scope", attention.SCOPES)
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_an_infinity_in_the_cache_shows(device, monkeypatch, dtype, which, infinite, scope, cores, kv_heads):
    """Also a score of minus infinity, which has no weight, and one in a part that has little."""
    with_workers(device, monkeypatch, cores)
    monkeypatch.setattr(attention_numpy, "FEWEST_ROWS", 1)
    for row in (0, 5, 16):
        cell = cell_of(device, AllCores, dtype, batch=3, kv_heads=kv_heads, cores=cores)
        right = cell.step("core")(0).astype(numpy.float32)
        cell.caches[0][which][2, 0, row, 3] = infinite
        result = cell.step("core")(0).astype(numpy.float32)
        assert numpy.array_equal(result[:2], right[:2])
        reached = 2 // kv_heads  # heads that have the row
        assert not numpy.isfinite(result[2, :reached]).all(axis=-1).any()
        assert numpy.array_equal(result[2, reached:], right[2, reached:])
        assert not numpy.isfinite(cell.step("block")(0)[2].astype(numpy.float32)).any()
        with pytest.raises(ArithmeticError):
            cell.check(scope)


def test_bf16_is_no_number_that_numpy_ranks():
    """Why attend() widens it by hand."""
    with pytest.raises(TypeError):
        numpy.promote_types(ml_dtypes.bfloat16, numpy.float16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scope", attention.SCOPES)
def test_a_corrupted_result_fails_the_job(device, monkeypatch, kind, dtype, scope):
    cell = cell_of(device, kind, dtype, batch=3)
    right = cell.step(scope)

    def one_head_of_the_last_sequence_is_wrong(index):
        result = right(index)
        result[-1].reshape(-1)[:8] *= 1.1
        return result

    cell.check(scope)
    monkeypatch.setattr(cell, "step", lambda scope: one_head_of_the_last_sequence_is_wrong)
    with pytest.raises(ArithmeticError, match=f"decode attention {scope} {dtype}"):
        cell.check(scope)


# ---------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_rotate_among_buffers_of_the_same_contents(device, kind, dtype):
    """Other addresses, so that a step reads memory, and the same numbers, so that one check is of all."""
    cell = cell_of(device, kind, dtype, batch=3, copies=3)
    results = [cell.step("block")(index) for index in range(4)]
    assert all(numpy.array_equal(result, results[0]) for result in results)
    for arrays in ([keys for keys, _ in cell.caches], [layer["query"] for layer in cell.layers]):
        assert len({array.ctypes.data for array in arrays}) == 3
    cell.caches[1][1][:] = 0
    assert not cell.step("core")(1).any() and not cell.step("core")(4).any()
    assert cell.step("core")(0).any() and cell.step("core")(2).any()
    cell.layers[2]["output"][:] = 0
    bias = cell.layers[2]["output_bias"]
    assert numpy.array_equal(cell.step("block")(2), numpy.broadcast_to(bias, (3, 16)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "seq_len"), [(1, 17), (3, 1000)])
def test_what_a_cell_takes_is_known_beforehand(device, monkeypatch, kind, dtype, batch, seq_len):
    """No less than it allocates, or the job fails; not much more, or a user is refused what would fit."""
    monkeypatch.setattr(device, "last_level_cache_bytes", 8 << 20)
    tracemalloc.start()
    try:
        cell = cell_of(device, kind, dtype, batch, seq_len, heads=8, head_size=64, copies=None)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    arrays = [array for pair in cell.caches for array in pair]
    arrays += [array for layer in cell.layers for array in layer.values()]
    taken = sum(array.nbytes for array in arrays)
    promised = attention.workspace_bytes(cell.shape, dtype, 8 << 20)
    # A graph of all layers rounds its caches up to whole models of them: less than the rotation once more.
    rounding = attention.COLD_CACHE_MULTIPLE * (8 << 20)
    assert taken < most < promised < 1.5 * taken + rounding + (257 << 20)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("cores", [1, 2])
def test_no_step_allocates_in_proportion_to_the_cache(device, monkeypatch, dtype, kv_heads, cores):
    with_workers(device, monkeypatch, cores)
    monkeypatch.setattr(device, "last_level_cache_bytes", 1 << 20)
    shape = {"batch": 4, "seq_len": 2048, "heads": 8, "kv_heads": kv_heads, "head_size": 64}
    cell = cell_of(device, AllCores, dtype, cores=cores, **shape)
    step = cell.step("core")
    step(0)
    tracemalloc.start()
    try:
        step(1)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < attention.cache_bytes(cell.shape, dtype) / 50


def test_cold_is_said_only_of_a_rotation_larger_than_the_cache(device, monkeypatch, kind):
    monkeypatch.setattr(device, "last_level_cache_bytes", 1 << 20)
    assert not cell_of(device, kind, copies=1).cold
    rotating = cell_of(device, kind, copies=None)
    assert rotating.cold
    assert len(rotating.caches) * attention.cache_bytes(rotating.shape, "fp32") >= 3 << 20


# ---------------------------------------------------------------------------------------------- by name


def test_the_cpus_cell_by_name(device):
    size = 16
    layer = {name: numpy.eye(size, dtype=numpy.float32) for name in ("query", "output")}
    layer |= {name: numpy.zeros(size, numpy.float32) for name in ("query_bias", "output_bias")}
    hidden = numpy.ones((1, size), numpy.float32)
    shape = attention.Shape(1, 2, 1, 8, 17)
    assert attention.implementations_of("cpu", None) == ["numpy"]
    cell = make_cell(device, "numpy", shape, "fp32", layer, hidden, seed=1, copies=1)
    assert isinstance(cell, AllCores) and cell.scopes == attention.SCOPES
    for scope in cell.scopes:
        assert cell.check(scope)[0].error < 1e-5


def test_the_blas_has_all_of_its_threads_after_a_step(device):
    before = device.software()["blas_threads"]
    cell = cell_of(device, cores=device.cores)
    assert device.on_cores(1, lambda worker: device.software()["blas_threads"]) == ["1"]
    cell.step("block")(0)
    with pytest.raises(ZeroDivisionError):
        device.on_cores(device.cores, lambda worker: 1 / 0)
    assert device.software()["blas_threads"] == before
