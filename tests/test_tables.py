"""The tables of dtypes, levels and architectures: what they say of a card, and that a new row misses nothing."""

from types import SimpleNamespace
from typing import get_args

import pytest
from fake_gpu import open_gpu
from workflow_run import CHECKOUT

from roofline.core.architectures import ARCHITECTURES, architecture_of, parse_capability
from roofline.core.dtypes import DTYPES, PRODUCT_DTYPES
from roofline.core.levels import BETWEEN_GPUS, LEVELS, SWEEP, TARGETS, TRANSACTION_ROOFS
from roofline.core.terms import RegimeLevel
from roofline.devices.cpu import dram_benchmarks
from roofline.devices.datasheets import read_datasheets
from roofline.devices.gpu import cache_benchmarks, driver_calls, hbm_benchmarks
from roofline.operators.gemm.about import AboutGemm
from roofline.operators.gemm.operator import Gemm
from roofline.report.palette import DTYPE_COLOURS, LEVEL_COLOURS

DATASHEETS = read_datasheets(CHECKOUT / "config/datasheets.yaml")
RATES = DATASHEETS["architectures"]
OF_PRODUCTS = pytest.mark.parametrize("name", PRODUCT_DTYPES)


@pytest.mark.parametrize(("capability", "mma"), [("7.0", "m8n8k4"), ("7.5", "m16n8k8"), ("8.7", "m16n8k16")])
def test_the_matrix_instruction_is_that_of_the_compute_capability(capability, mma):
    assert architecture_of(parse_capability(capability)).mma == f"mma.sync {mma}"


@pytest.mark.parametrize(("capability", "advised"), [("7.0", False), ("7.5", False), ("8.0", True), ("9.0", True)])
def test_tf32_is_advised_on_cards_that_have_it(capability, advised):
    cell = SimpleNamespace(dtype="fp32", implementation="cupy.matmul")
    advice = AboutGemm().advice(cell, "gpu", architecture_of(parse_capability(capability)))
    assert ("TF32 on tensor cores" in advice["compute"]) == advised


@pytest.mark.parametrize(("capability", "share"), [("8.6", "fma_pipe_share"), ("9.0", "tensor_pipe_share")])
def test_an_fp64_product_is_predicted_by_the_unit_that_computes_it(monkeypatch, capability, share):
    device = open_gpu(monkeypatch, capability=capability)
    (cell,) = Gemm().plan_cells(device, "fp64", 256)
    assert cell.costs(None).compute_share == share


def test_a_matrix_whose_type_the_copy_engine_does_not_know_is_refused(monkeypatch):
    device = open_gpu(monkeypatch)
    with pytest.raises(AttributeError, match="INT8"):
        driver_calls.make_tensor_map(device.empty((64, 64), "int8"), 64)


@OF_PRODUCTS
def test_a_dtype_has_a_colour(name):
    assert name in DTYPE_COLOURS, f"report/palette.py: no colour of {name}"


@OF_PRODUCTS
def test_a_dtype_is_computed_by_some_architecture_at_a_known_rate(name):
    row = DTYPES[name]
    having = [architecture for architecture in ARCHITECTURES if name in architecture.tensor_dtypes]
    assert having or row.pipe, f"neither tensor cores of core/architectures.py nor a pipe compute {name}"
    for architecture in having:
        if (known := RATES.get("{}.{}".format(*architecture.since))) is None:
            continue  # as of 11.0, of which no rates are published
        missing = f"config/datasheets.yaml: no rate of {name} on {architecture.since}"
        assert not row.rated or name in known["tensor_core"], missing


@OF_PRODUCTS
def test_a_class_of_slower_tensor_cores_says_how_fast_a_dtype_is(name):
    for card in DATASHEETS["cards"].values():
        factors = DATASHEETS["rate_classes"][card["rate_class"]]["factors"]
        if factors and name in RATES[card["compute_capability"]]["tensor_core"]:
            missing = f"config/datasheets.yaml: rate_classes.{card['rate_class']}.factors has no {name}"
            assert name in factors, missing


def test_a_target_has_a_benchmark_on_its_kind_of_device():
    benchmarks = {"gpu": cache_benchmarks.BENCHMARKS | hbm_benchmarks.BENCHMARKS, "cpu": dram_benchmarks.BENCHMARKS}
    for name in TARGETS.keys() - {SWEEP, *BETWEEN_GPUS}:
        kind = TARGETS[name].device_kind
        assert name in benchmarks[kind], f"devices/{kind}: no BENCHMARKS has {name}"


def test_levels_have_a_colour_for_their_transactions_and_regimes_and_targets_a_level():
    assert LEVEL_COLOURS.keys() == TRANSACTION_ROOFS.keys()
    assert set(get_args(RegimeLevel)) <= LEVELS.keys()
    assert {target.level for target in TARGETS.values()} - {""} <= LEVELS.keys()
