"""Fused decode attention before it is on a card: how the work is divided, and what is launched on a card of NumPy."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_card import open_card, record_launches

from roofline.operators.decode_attention import fused as attention_fused
from roofline.operators.decode_attention import operator as attention
from roofline.operators.decode_attention.fused import LEAST_KEYS, Fused, FusedGraph, Plan, plan, splits_of, variants
from roofline.operators.decode_attention.operator import DTYPES, HEAD_SIZES, Shape
from roofline.operators.implementations import make_cell

KIB = 1 << 10
H200 = {"capability": (9, 0), "multiprocessors": 132, "shared_a_multiprocessor": 228 * KIB}
T4 = {"capability": (7, 5), "multiprocessors": 40, "shared_a_multiprocessor": 64 * KIB}
L4 = {"capability": (8, 9), "multiprocessors": 58, "shared_a_multiprocessor": 100 * KIB}
CARDS = st.sampled_from([H200, T4, L4])
SEQ_LENS = st.one_of(st.integers(1, 300), st.integers(1, 200_000))
SHAPES = st.builds(
    lambda batch, kv_heads, group, head_size, seq_len: Shape(batch, kv_heads * group, kv_heads, head_size, seq_len),
    st.integers(1, 600),
    st.integers(1, 32),
    st.integers(1, 17),
    st.sampled_from(HEAD_SIZES),
    SEQ_LENS,
)


def planned(batch=1, kv_heads=8, group=1, head_size=64, seq_len=1024, dtype="fp16", card=H200) -> Plan:
    return plan(Shape(batch, kv_heads * group, kv_heads, head_size, seq_len), dtype, **card)


# ---------------------------------------------------------------------------------------------- the keys of a block


def keys_of(seq_len: int, tile: int, split: int, splits: int) -> range:
    """As kernels/decode_attention.cu has it."""
    slices = (seq_len + tile - 1) // tile
    begin = slices * split // splits * tile
    end = min(seq_len, slices * (split + 1) // splits * tile)
    return range(begin, end)


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_every_key_is_in_exactly_one_split(shape, dtype, card):
    found = plan(shape, dtype, **card)
    parts = [keys_of(shape.seq_len, found.variant.tile, split, found.splits) for split in range(found.splits)]
    assert [parts[0].start, *(part.stop for part in parts)] == [*(part.start for part in parts), shape.seq_len]
    assert all(parts), "a block without a key"


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_every_query_of_every_head_is_in_exactly_one_tile(shape, dtype, card):
    found = plan(shape, dtype, **card)
    assert found.tiles * found.variant.queries >= shape.group > (found.tiles - 1) * found.variant.queries
    assert found.blocks == shape.batch * shape.kv_heads * found.tiles * found.splits


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_there_is_a_split_and_none_without_a_key_of_its_own(shape, dtype, card):
    assert 1 <= plan(shape, dtype, **card).splits <= shape.seq_len


@given(st.integers(1, 5000), SEQ_LENS, st.integers(1, 200), st.integers(1, 8))
def test_no_split_where_two_turns_are_enough(heads, seq_len, multiprocessors, resident):
    splits = splits_of(heads, seq_len, multiprocessors, resident)
    assert 1 <= splits <= seq_len
    if seq_len <= 2 * LEAST_KEYS:
        assert splits == 1
    assert splits == 1 or seq_len // splits >= LEAST_KEYS


def test_a_split_has_keys_enough_to_be_worth_its_joining():
    """A block for each of the 132 multiprocessors at most, of 8 heads, as long as the splits are not long."""
    assert planned(seq_len=2 * LEAST_KEYS).splits == 1
    for seq_len in (2 * LEAST_KEYS + 1, 512, 1024, 2048, 4096):
        assert planned(seq_len=seq_len).splits == min(seq_len // LEAST_KEYS, 132 // 8)


@given(st.integers(1, 200), st.integers(2 * LEAST_KEYS + 1, 200_000), st.integers(1, 200), st.integers(1, 8))
def test_a_small_batch_fills_the_card_as_far_as_its_keys_go(heads, seq_len, multiprocessors, resident):
    """Half of the multiprocessors or more have a block, of those for which there are LEAST_KEYS."""
    blocks = heads * splits_of(heads, seq_len, multiprocessors, resident)
    assert blocks > min(multiprocessors, heads * (seq_len // LEAST_KEYS)) / 2


@given(st.integers(1, 4), SHAPES, st.sampled_from(DTYPES), CARDS)
def test_nearly_every_multiprocessor_has_a_block_where_s_is_very_long(batch, shape, dtype, card):
    found = planned(batch, shape.kv_heads, shape.group, shape.head_size, 2_000_000, dtype, card)
    assert found.blocks > 0.75 * card["multiprocessors"]


@given(st.integers(1, 5000), st.integers(LEAST_KEYS, 200_000), st.integers(1, 200), st.integers(1, 8))
def test_heads_that_fill_the_card_twice_are_not_split(heads, seq_len, multiprocessors, resident):
    if heads >= attention_fused.CROWDED[1] * multiprocessors * resident:
        assert splits_of(heads, seq_len, multiprocessors, resident) == 1


@pytest.mark.parametrize(
    ("card", "heads", "seq_len", "splits"),
    [
        ((132, 3), 8, 131_072, 33),  # two blocks a multiprocessor
        ((132, 3), 8, 8192, 16),  # one: two would have fewer than 512 keys each
        ((132, 3), 64, 8192, 4),  # two: 256 blocks
        ((132, 3), 56, 16_384, 7),  # 392 blocks are three, where two would leave 40 multiprocessors with one
        ((132, 3), 104, 2048, 1),  # nothing is even: one on most, rather than two on many and one on others
        ((132, 3), 104, 8192, 8),  # nor is it here, but there are keys for 832 blocks, more than two waves
        ((132, 3), 512, 8192, 4),  # a wave and a third become five
        ((132, 3), 512, 4096, 4),  # of 1024 keys each
        ((132, 3), 512, 2048, 1),  # too short for that
        ((132, 3), 800, 8192, 1),  # two waves are enough
        ((108, 2), 64, 2048, 3),  # 192 blocks, two on most, where one each would leave 44 idle
        ((58, 4), 32, 2048, 3),
        ((40, 1), 32, 4096, 4),  # room for one each: 128 blocks are three waves
    ],
)
def test_long_keys_are_divided_evenly_or_into_many_waves(card, heads, seq_len, splits):
    """Cards as (multiprocessors, blocks that one has room for)."""
    assert splits_of(heads, seq_len, *card) == splits


# ---------------------------------------------------------------------------------------------- variants


@given(SHAPES, st.sampled_from(DTYPES), st.sampled_from([(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]))
def test_tensor_cores_for_groups_of_16_bit_numbers_from_ampere_on(shape, dtype, capability):
    found = list(variants(shape, dtype, capability, 100 * KIB))
    assert found
    expected = shape.group > 1 and dtype in ("fp16", "bf16") and capability >= (8, 0)
    assert {variant.by_mma for variant in found} == {expected}


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_a_variant_holds_a_group_or_the_most_that_the_registers_do(shape, dtype, card):
    for variant in variants(shape, dtype, card["capability"], card["shared_a_multiprocessor"]):
        most = 8 if variant.by_mma else 4
        assert variant.queries == most or (variant.queries >= shape.group and not variant.by_mma)
        assert variant.queries < 2 * shape.group or variant.by_mma, "places of no query"
        assert variant.blocks >= 1
        resident = variant.blocks * (variant.shared_bytes + attention_fused.RESERVED_BYTES)
        assert resident <= card["shared_a_multiprocessor"]


@given(SHAPES, st.sampled_from(DTYPES))
def test_tiles_ahead_in_shared_memory_where_two_blocks_have_room_for_them(shape, dtype):
    """64 KiB a block of four warps, 32 of two: not on Turing, which has no cp.async; on an L4 only those of two."""
    groups = [(2, 2)] if shape.group > 1 else []
    for card, expected in ((H200, [(2, 4), *groups, (0, 4)]), (T4, [(0, 4)]), (L4, [*groups, (0, 4)])):
        found = list(variants(shape, dtype, card["capability"], card["shared_a_multiprocessor"]))
        assert [(variant.stages, variant.warps) for variant in found] == expected


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_the_first_variant_is_chosen_but_where_it_is_crowded_or_soon_done(shape, dtype, card):
    """Its second wave would hold few blocks, and another has room for all; or S is short, and most at once are best."""
    found = list(variants(shape, dtype, card["capability"], card["shared_a_multiprocessor"]))

    def blocks(variant):
        heads = shape.batch * shape.kv_heads * math.ceil(shape.group / variant.queries)
        return heads * splits_of(heads, shape.seq_len, card["multiprocessors"], variant.blocks)

    slots = [card["multiprocessors"] * one.blocks for one in found]
    waves = [blocks(one) / each for one, each in zip(found, slots, strict=True)]
    chosen = plan(shape, dtype, **card)
    place = found.index(chosen.variant)
    if shape.seq_len <= 2 * LEAST_KEYS and (found[0].by_mma or shape.group == 1):
        at_once = [min(blocks(one), each) for one, each in zip(found, slots, strict=True)]
        assert at_once[place] == max(at_once)
        return
    crowded = attention_fused.CROWDED[0] < waves[0] < attention_fused.CROWDED[1]
    roomy = [number for number, each in enumerate(waves) if each <= 1]
    assert place == (roomy[0] if crowded and roomy else 0)


def test_another_variant_is_chosen_where_the_first_is_crowded():
    """396 slots of three blocks each, or 528 of four: 528 heads are one wave and a third, or one. A hundredth of a wave
    more than one is not worth another variant."""
    fits, few_more, crowds, fills = (planned(batch=batch) for batch in (48, 50, 66, 99))
    assert (fits.blocks, fits.variant.stages, fits.variant.blocks) == (384, 2, 3)
    assert (few_more.blocks, few_more.variant.stages, few_more.variant.blocks) == (400, 2, 3)
    assert (crowds.blocks, crowds.variant.stages, crowds.variant.blocks) == (528, 0, 4)
    assert (fills.blocks, fills.variant.stages, fills.variant.blocks) == (792, 2, 3)


def test_short_keys_of_a_group_take_small_blocks_by_tensor_cores_alone():
    by_mma, by_fma = (planned(batch=256, group=4, seq_len=128, dtype=dtype) for dtype in ("fp16", "fp32"))
    assert (by_mma.variant.by_mma, by_mma.variant.warps) == (True, 2)
    assert (by_fma.variant.by_mma, by_fma.variant.warps) == (False, 4)


def test_a_plan_in_words():
    ahead = "2 tiles ahead in shared memory"
    assert str(planned()) == f"by multiply-adds, {ahead}; 64 blocks of 128 threads, S in 8 splits"
    assert str(planned(batch=256, group=4)) == f"by tensor cores, {ahead}; 2048 blocks of 128 threads, S whole"
    assert str(planned(batch=64, group=4)) == f"by tensor cores, {ahead}; 512 blocks of 64 threads, S whole"
    assert str(planned(batch=5, card=T4)) == "by multiply-adds, a tile ahead; 40 blocks of 128 threads, S whole"


@pytest.mark.parametrize(("dtype", "number"), [("fp32", "Fp32"), ("fp16", "Fp16"), ("bf16", "Bf16")])
def test_the_macros_of_a_variant(dtype, number):
    (*_, variant) = variants(Shape(1, 2, 1, 64, 1), dtype, (7, 5), 64 * KIB)
    macros = variant.defines(dtype, 64)
    assert macros == (
        f"-DDTYPE={number}",
        "-DHEAD_SIZE=64",
        "-DQUERIES=2",
        "-DWARPS=4",
        "-DBLOCKS=3",
        "-DSTAGES=0",
        "-DBY_MMA=0",
    )


@given(SHAPES, st.sampled_from(DTYPES), CARDS)
def test_few_blocks_are_spread_evenly_by_the_shared_memory_that_they_take(shape, dtype, card):
    """A multiprocessor has room for as many as each is to have, whatever leaves and comes, and for none too large."""
    found = plan(shape, dtype, **card)
    shared_bytes = card["shared_a_multiprocessor"]
    assert found.variant.shared_bytes <= found.shared_bytes <= shared_bytes - attention_fused.RESERVED_BYTES
    taken = -(-found.shared_bytes // attention_fused.GRANULE) * attention_fused.GRANULE + attention_fused.RESERVED_BYTES
    each = math.ceil(found.blocks / card["multiprocessors"])
    if each < found.variant.blocks:
        assert shared_bytes // taken == each
    else:
        assert shared_bytes // taken >= found.variant.blocks


# ---------------------------------------------------------------------------------------------- launches


SHAPE = Shape(2, 8, 2, 64, 700)


@pytest.fixture
def device(monkeypatch):
    return open_card(monkeypatch)


def cell_of(device, implementation, shape=SHAPE, dtype="fp32", copies=3, layers=1, seed=5):
    random = numpy.random.default_rng(seed)
    size = shape.hidden_size
    layer = {name: random.standard_normal((size, size), numpy.float32) / size**0.5 for name in ("query", "output")}
    layer |= {f"{name}_bias": random.standard_normal(size, numpy.float32) for name in ("query", "output")}
    hidden = random.standard_normal((shape.batch, size), numpy.float32)
    return make_cell(device, implementation, shape, dtype, layer, hidden, seed=seed, copies=copies, layers=layers)


def address(array) -> int:
    return array.ctypes.data


def number_the_caches(cell) -> None:
    """Have the values of the n-th cache all be n: so is what a step over it gives."""
    for number, (_, values) in enumerate(cell.caches):
        values[...] = number


@pytest.mark.parametrize("capability", ["7.5", "8.6", "9.0"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("implementation", ["fused", "fused_graph"])
@pytest.mark.parametrize("group", [1, 3, 4])
def test_the_step_of_a_cell_passes_its_check(monkeypatch, group, implementation, dtype, capability):
    """All that is launched fits the kernel's own signature and the launch's grid: the stand-in looks."""
    device = open_card(monkeypatch, capability)
    cell = cell_of(device, implementation, Shape(2, 2 * group, 2, 64, 700), dtype, layers=4)
    check, _ = cell.check("core")
    assert check.error <= check.tolerance and "heads of 2 sequences" in check.compared
    assert cell.joins is (cell.plan.splits > 1) is True
    assert str(cell.plan) in cell.described()


def test_a_wrong_result_fails(device):
    cell = cell_of(device, "fused")
    cell.query[1, 3] *= 1.01
    kept = cell.step("core")

    def scribbles(index):
        kept(index)
        cell.out[1, 3, 5] += 1
        return cell.out

    cell.step = lambda scope: scribbles
    with pytest.raises(ArithmeticError, match="decode attention core fp32"):
        cell.check("core")


def test_a_launch_a_step_and_the_caches_in_turn(monkeypatch, device):
    launches = record_launches(monkeypatch, device)
    cell = cell_of(device, "fused", copies=3)
    step = cell.step("core")
    for index in range(7):
        step(index)
    assert cell.steps_a_call() == 1
    assert len(launches) == 7
    for index, (name, blocks, threads, arguments) in enumerate(launches):
        assert (name, blocks, threads) == ("decode_attention", cell.plan.blocks, 128)
        assert [address(array) for array in arguments[1:3]] == [address(array) for array in cell.caches[index % 3]]
        assert arguments[0] is cell.query and arguments[3] is cell.out
        assert arguments[6:] == (700, 4, cell.plan.splits)


def test_the_rotation_is_cold_as_long_as_the_caches_outweigh_the_last_level_cache(device):
    """The stand-in's L2 keeps 1 MiB; K and V of a step are 2 x 2 x 2 x 700 x 64 numbers."""
    cell = cell_of(device, "fused", copies=None)
    assert len(cell.arguments) == len(cell.caches) == math.ceil(3 * 2**20 / (2 * 2 * 2 * 700 * 64 * 4))
    assert cell.cold and not cell_of(device, "fused", copies=1).cold
    assert len({address(keys) for keys, _ in cell.caches}) == len(cell.caches)


@pytest.mark.parametrize(("layers", "copies"), [(1, 3), (2, 3), (3, 3), (4, 3), (7, 3), (6, 48), (5, 48), (3, 1)])
def test_graphs_go_through_all_caches_in_turn(device, layers, copies):
    cell = cell_of(device, "fused_graph", layers=layers, copies=copies)
    number_the_caches(cell)
    step, read = cell.step("core"), []
    for graph in cell.graphs:
        for does, launch in graph.launches:
            does(launch)
            read.append(int(launch.out[0, 0, 0].round()))
    assert all(len(graph.launches) == layers == cell.steps_a_call() and graph.uploaded for graph in cell.graphs)
    assert read == [place % copies for place in range(len(read))]
    assert len(read) == math.lcm(copies, layers), "from the last graph to the first the rotation goes on"
    for index in range(2 * len(cell.graphs) + 1):
        last = (index % len(cell.graphs) + 1) * layers - 1
        assert step(index)[0, 0] == pytest.approx(last % copies)


def test_waves_are_the_blocks_over_those_that_the_card_holds(device):
    small, large = cell_of(device, "fused", Shape(1, 1, 1, 64, 64)), cell_of(device, "fused", Shape(300, 8, 8, 64, 16))
    assert small.waves == 1
    slots = device.multiprocessors * large.plan.variant.blocks
    assert large.waves == large.plan.blocks / slots == 2400 / slots > 1


@pytest.mark.parametrize(("layers", "copies", "rounded"), [(6, 5, 5), (6, 6, 6), (6, 7, 12), (32, 33, 64), (1, 9, 9)])
def test_more_caches_than_layers_are_whole_models_of_them(device, monkeypatch, layers, copies, rounded):
    monkeypatch.setattr("roofline.operators.decode_attention.rotation_copies", lambda *_: copies)
    assert len(cell_of(device, "fused_graph", layers=layers, copies=None).caches) == rounded


@pytest.mark.parametrize("capability", ["8.9", "9.0"])
def test_a_graph_computes_what_launches_do(monkeypatch, capability):
    """From 9.0 on by the driver's own launch, of the same arguments."""
    device = open_card(monkeypatch, capability)
    fused, graph = (cell_of(device, name, layers=5) for name in ("fused", "fused_graph"))
    assert (fused.step("core")(2) == graph.step("core")(0)).all()
    assert "5 layers a graph" in graph.described()


def test_the_kernels_of_a_graph_overlap_from_hopper_on(monkeypatch):
    asked = []
    for capability in ("8.9", "9.0", "10.0"):
        device = open_card(monkeypatch, capability)
        monkeypatch.setattr(
            "roofline.devices.gpu.cuda_launch.overlapping", lambda *given, to=capability: asked.append(to)
        )
        _ = cell_of(device, "fused_graph", layers=2, copies=1).graphs
    assert asked == ["9.0", "9.0", "10.0", "10.0"]


def test_a_launch_that_the_driver_refuses_is_told_by_its_name_and_ends_the_capture(device):
    cell = cell_of(device, "fused_graph", layers=2)
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE"):
        device.graph(cell.kernel, (0,), (128,), cell.arguments, 0)
    assert len(device.graph(cell.kernel, (cell.plan.blocks,), (128,), cell.arguments, 0).launches) == 3


@pytest.mark.parametrize(("implementation", "layers"), [("fused", 1), ("fused_graph", 6)])
def test_the_empty_kernel_is_called_as_the_real_one_is(device, implementation, layers):
    cell = cell_of(device, implementation, layers=6)
    cell.out[...] = 7
    cell.empty_step()(3)
    assert (cell.out == 7).all(), "it does nothing"
    assert cell.steps_a_call() == layers
    assert cell_of(device, "eager").empty_step() is None


def test_shared_memory_beyond_what_every_card_grants_is_asked_for(monkeypatch, device):
    """The stand-in refuses it otherwise, as a card does."""
    granted = attention_fused.STATIC_SHARED_BYTES
    cell = cell_of(device, "fused", Shape(1, 1, 1, 64, 64))
    assert cell.kernel.max_dynamic_shared_size_bytes >= cell.plan.shared_bytes >= 64 * KIB > granted
    small = cell_of(open_card(monkeypatch, "7.5"), "fused", Shape(600, 1, 1, 64, 2))
    assert small.kernel.max_dynamic_shared_size_bytes == granted > small.plan.shared_bytes


@pytest.mark.parametrize("implementation", ["fused", "fused_graph"])
def test_a_block_of_attention_is_eagers_alone(implementation):
    kinds = {"fused": Fused, "fused_graph": FusedGraph}
    assert kinds[implementation].scopes == ("core",)
    assert attention.IMPLEMENTATIONS["gpu"] == ("eager", "fused", "fused_graph")


@given(SHAPES, st.sampled_from(DTYPES))
def test_work_and_traffic_of_a_group(shape, dtype):
    """A K/V head is read once for all of its queries: the intensity is the group's."""
    alone = Shape(shape.batch, shape.heads, shape.heads, shape.head_size, shape.seq_len)
    assert attention.flops(shape, "core") == attention.flops(alone, "core")
    assert attention.traffic_bytes(shape, dtype, "core") * shape.group == attention.traffic_bytes(alone, dtype, "core")


@pytest.mark.parametrize(("group", "kv_heads"), [(1, 2), (1, 8), (4, 2), (4, 8)])
def test_eager_and_fused_agree_for_every_group(device, group, kv_heads):
    shape = Shape(2, group * kv_heads, kv_heads, 64, 33)
    eager, fused = (cell_of(device, name, shape) for name in ("eager", "fused"))
    assert fused.step("core")(0) == pytest.approx(eager.step("core")(0), rel=1e-4, abs=1e-5)
