"""Products of a GPU without one: shapes, operands, layouts and checks of every dtype on cuBLASLt in NumPy."""

import time
from itertools import islice
from types import SimpleNamespace

import fake_gpu
import numpy
import pytest
from factories import datasheet_figures, datasheet_peak, device_record, seals_for
from fake_gpu import open_gpu, skip_unless_supported

from roofline.core import dtypes
from roofline.measure import compute_ceiling, search
from roofline.measure.protocol import TimingBudget
from roofline.operators.gemm import cuda_products, tensor_matmul
from roofline.operators.gemm.cublaslt import layouts
from roofline.operators.gemm.cuda_products import BY_CUPY, CublasLtWorkloads, GemmShape
from roofline.operators.gemm.operator import Gemm, filled_share
from roofline.operators.gemm.tiling import choose_tiling

DTYPES = dtypes.PRODUCT_DTYPES
CEILING_OUTPUTS = {name: dtypes.DTYPES[name].outputs[0] for name in DTYPES}
EVERY = [(dtype, output) for dtype in DTYPES for output in dtypes.DTYPES[dtype].outputs]
SIZE = 64


gpu = fake_gpu.gpu  # the fixture


@pytest.fixture
def device(monkeypatch):
    return open_gpu(monkeypatch)


@pytest.mark.parametrize("dtype", ["fp16", "fp8_e4m3"])
def test_candidates_begin_with_the_reference_library_and_keep_to_flops_and_memory(monkeypatch, dtype):
    free_bytes, most_flops = 16 << 20, 2 * 128 * 128 * 512
    device = open_gpu(monkeypatch, free_bytes=free_bytes)
    found = list(cuda_products.candidate_workloads(device, dtype, 128, most_flops, seed=3))
    first = found[0].product
    assert first.library == ("cupy.matmul" if dtype in BY_CUPY else "cuBLASLt")
    assert first.shape == dict.fromkeys("mnk", 128)
    assert len({one.flops for one in found}) > 1 and {one.product.output for one in found} == {
        CEILING_OUTPUTS[dtype].dtype
    }
    for one in found:
        m, n, k = one.product.shape.values()
        assert one.flops <= most_flops
        operands, results = dtypes.dtype_bytes(dtype, (m + n) * k), dtypes.dtype_bytes(one.product.output, m * n)
        assert 4 * (operands + results) <= free_bytes
    others = [one for one in cuda_products.candidate_workloads(device, dtype, 128, 1.0, 3) if one.product != first]
    assert {tuple(one.product.shape.values()) for one in others} == {(128, 128, 128)}, "where none fits"


@pytest.mark.parametrize(("dtype", "output"), EVERY)
def test_every_output_and_layout_is_right(gpu, dtype, output):
    skip_unless_supported(gpu, dtype)
    lt = CublasLtWorkloads(gpu, dtype, [GemmShape(64, 128, 192), GemmShape(192, 64, 128)], seed=1)
    firsts = [(m, layout) for m in (64, 192) for layout in layouts(dtype)]
    found = list(islice(lt.candidates(output), 2 * len(firsts)))
    first_choices = [(one.product.shape["m"], one.product.layout) for one in found[: len(firsts)]]
    assert first_choices == firsts, "the first choice of every shape and layout, then every second choice"
    for one in found:
        check = one.run_and_check()
        assert check.relative_error <= check.tolerance == dtypes.TOLERANCES[dtype]
        assert one.flops == 2 * 64 * 128 * 192
        assert (one.product.output, one.product.accumulation) == output


@pytest.mark.parametrize(("dtype", "output"), [EVERY[0], EVERY[-1]])
def test_a_wrong_product_is_found(device, dtype, output):
    workload = next(CublasLtWorkloads(device, dtype, [GemmShape(64, 128, 192)], seed=1).candidates(output))
    workload.run_and_check()
    for wrong in (
        lambda product: None,  # nothing is written, and what stood there is right
        lambda product: 0 * product,
        lambda product: 1.05 * product,
        lambda product: numpy.where(numpy.arange(product.shape[0])[:, None] == product.shape[0] - 1, 0, product),
    ):
        device.cublaslt.written = wrong
        with pytest.raises(ArithmeticError, match=f"{dtype} product 64 x 128 x 192"):
            workload.run_and_check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_product_is_the_square_and_what_was_found_is_found_again(gpu, dtype):
    skip_unless_supported(gpu, dtype)
    reference = cuda_products.reference_workload(gpu, dtype, SIZE, seed=1)
    assert reference.product.library == ("cupy.matmul" if dtype in BY_CUPY else "cuBLASLt")
    assert reference.product.shape == {"m": SIZE, "n": SIZE, "k": SIZE} and reference.flops == 2 * SIZE**3
    assert reference.product.output == CEILING_OUTPUTS[dtype].dtype
    assert reference.run_and_check().relative_error <= dtypes.TOLERANCES[dtype]
    *_, last = CublasLtWorkloads(gpu, dtype, [GemmShape(64, 128, 192)], seed=1).candidates(CEILING_OUTPUTS[dtype])
    for one in (reference, last):
        again = cuda_products.rebuild_workload(gpu, dtype, SIZE, one.product, seed=5)
        assert (again.product, again.flops) == (one.product, one.flops)
        again.run_and_check()
    lost = one.product.model_copy(update={"algorithm": "choice 9"})
    with pytest.raises(LookupError, match="choice 9"):
        cuda_products.rebuild_workload(gpu, dtype, SIZE, lost, seed=5)


def test_variants_are_of_other_outputs_and_accumulations(device):
    found = {
        dtype: [
            {(one.product.output, one.product.accumulation, one.inputs) for one in ways}
            for ways in cuda_products.variant_workloads(device, dtype, 128, 2 * 128**3, seed=7)
        ]
        for dtype in DTYPES
    }
    assert found.pop("fp8_e4m3") == [{("bf16", "fp32", cuda_products.inputs_text("fp8_e4m3"))}]
    assert found.pop("int8") == [{("int32", "int32", cuda_products.inputs_text("int8"))}]
    assert not any(found.values())


@pytest.mark.parametrize("ceiling", ["bf16", "int8", "fp32_fma"])
def test_a_ceiling_is_measured_from_reference_product_to_variants(monkeypatch, ceiling):
    monkeypatch.setattr(compute_ceiling, "time", SimpleNamespace(sleep=lambda seconds: None, monotonic=time.monotonic))
    monkeypatch.setattr(compute_ceiling, "MOST_STEPS", 10)
    device = open_gpu(monkeypatch, MultiProcessorCount=2)
    # Without a rate: the stand-in's multiply-adds are over sooner than any card's.
    peaks = {ceiling: datasheet_peak(1e-9, operations_per_clock_per_multiprocessor=None)}
    record = device_record("gpu0", datasheet=datasheet_figures(peaks=peaks))
    budget = TimingBudget(1, 5, 0.1)
    target = compute_ceiling.CeilingTarget(device, record, ceiling, SIZE, SIZE, budget, sustained_s=0.05)
    peak, measurements = compute_ceiling.measure_compute_ceiling(target, seals_for(record, Gemm()))
    by_product = not ceiling.endswith("_fma")
    ours = ceiling == "bf16"
    assert (peak.workload, len(measurements)) == (("gemm", 1 + ours) if by_product else ("fma", 0))
    assert [one.implementation for one in measurements[1:]] == ["tensor_matmul"] * ours
    assert peak.burst.check.relative_error <= peak.burst.check.tolerance
    assert peak.search.tried == len(peak.candidates) > 1 and peak.search.refused == []
    assert len(peak.variants) == (ceiling == "int8")
    assert (peak.sustained is None) != by_product
    assert peak.compute_unit == device.compute_unit(ceiling) and peak.kernel.name is None
    assert peak.sm_clock_mhz == pytest.approx(1980)


# The last has more tiles than an H200 has clusters, which go on to a second one.
OURS = [(1000, 520, 328), (64, 264, 8), (4096, 2560, 512)]


def ours_of(device, dtype, *shapes):
    workloads = CublasLtWorkloads(device, dtype, [GemmShape(*shape) for shape in shapes], seed=1)
    return list(workloads.own_kernel_workloads())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_ours_is_right_at_every_shape_that_it_takes(gpu, dtype):
    for workload, (m, n, k) in zip(ours_of(gpu, dtype, *OURS), OURS, strict=True):
        assert (workload.product.library, workload.product.layout) == ("tensor_matmul", "TN")
        assert workload.product.shape == {"m": m, "n": n, "k": k} and workload.flops == 2 * m * n * k
        assert workload.run_and_check().relative_error <= dtypes.TOLERANCES[dtype]
        again = cuda_products.rebuild_workload(gpu, dtype, SIZE, workload.product, seed=5)
        assert again.product == workload.product
        again.run_and_check()


@pytest.mark.parametrize(
    ("capability", "dtype", "side", "reason"),
    [("7.0", "fp16", 64, "fp16 needs 7.5"), ("9.0", "bf16", 68, "rows of 68")],
)
def test_what_would_miss_the_tensor_cores_is_refused_with_the_reason(monkeypatch, capability, dtype, side, reason):
    device = open_gpu(monkeypatch, capability)
    found = list(cuda_products.candidate_workloads(device, dtype, side, 2 * side**3, seed=3))
    tried, searched = search.try_candidates(device, found, lambda workload: workload.step, 60)
    ours = [one.product.shape for one, *_ in tried if one.product.library == "tensor_matmul"]
    assert reason in searched.refused[0] and not any(shape["m"] % 8 or shape["k"] % 8 for shape in ours)
    assert cuda_products.own_reference_workloads(device, dtype, side, 1) == []
    with pytest.raises(ValueError, match=reason):
        matrices = [device.normal((side, side), dtype, seed) for seed in range(3)]
        tensor_matmul.make_launch(device, dtype, *matrices)


@pytest.mark.parametrize(
    ("shape", "share"),
    [
        ((128 * 11, 128 * 12, 128), 1.0),  # 132 tiles on 132 multiprocessors
        ((128 * 7, 128 * 19, 128), 133 / 264),  # one tile in its own wave
        ((128, 128, 128), 1 / 132),
        ((128, 128, 8192), 16 / 132),  # shared by as many as have 512 of k each
        ((8, 128 * 132, 128), 0.5),  # of the narrowest tile
    ],
)
def test_tiles_come_in_waves_and_few_share_their_depth(shape, share):
    assert filled_share(*shape, multiprocessors=132, tile=128) == pytest.approx(share)


CONSTANTS = {name: constant.value for name, constant in Gemm.constants["gpu"].items()}


def tiling_of(*shape: int):
    """The tiling of a product of 16 bits on 132 multiprocessors, and whether its loads hide behind its products."""
    return choose_tiling(shape, operand_bits=16, multiprocessors=132, share=0.8, constants=CONSTANTS)


def test_a_product_of_one_exact_wave_takes_one_and_a_square_one_hides_its_loads():
    tiling, loads_hide = tiling_of(22 * 128, 6 * 256, 65536)
    assert (tiling.waves, tiling.parts, loads_hide) == (1, 1, True)
    assert "split_tile_s" not in tiling.waits()
    _, loads_hide = tiling_of(8, 8192, 8192)
    assert not loads_hide


def test_the_depth_of_few_tiles_is_divided():
    tiling, _ = tiling_of(128, 128, 65536)
    assert tiling.parts > 1 and tiling.depth * tiling.parts == 65536
    assert tiling.waits()["split_sum_s_per_byte"] == 4 * 128 * 128 * tiling.parts
