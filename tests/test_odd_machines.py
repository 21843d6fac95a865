"""Machines of others' bug reports: a user without a name, a driver that does not answer, a broken CuPy or ncu."""

from types import SimpleNamespace

import counters
import pytest
from fake_gpu import use_nvml
from workflow_run import FAKES, new_gpu_run

from roofline.devices.gpu import cuda_driver, gpu_identity

NAMELESS = "import pwd\ndef of(number):\n    raise KeyError(number)\npwd.getpwuid = of\n"
BROKEN_CUPY = "raise ImportError('\\n====\\nFailed to import CuPy.\\n\\nOriginal error: ...\\n====')\n"
DRIVER_ERROR = "#!/bin/sh\necho '==ERROR== An error was reported by the driver:\n==ERROR== Not compatible.'\nexit 11\n"


def test_a_user_without_a_name_and_a_cupy_that_cannot_be_imported(tmp_path, monkeypatch):
    run = new_gpu_run(tmp_path / "run")
    (tmp_path / "cupy.py").write_text(BROKEN_CUPY)
    (tmp_path / "sitecustomize.py").write_text(NAMELESS)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    run.environment = run.environment | {"PYTHONPATH": f"{tmp_path}:{FAKES}"}
    done = run.snakemake("results/gpu0/device_query.json")
    assert "device_query gpu0 failed: Failed to import CuPy. (log: " in done.stderr and "Traceback" not in done.stderr


def test_why_no_gpu_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_identity, "DRIVER", tmp_path / "none")
    for visible, driver, refused, why in (
        (None, None, ["Init"], None),
        ("-1", 13000, [], None),  # hidden on purpose
        ("NoDevFiles", 13000, [], "CUDA_VISIBLE_DEVICES=NoDevFiles"),
        (None, 13000, ["Init"], "nvidia-smi"),
    ):
        use_nvml(monkeypatch, refused=refused, visible=visible)
        monkeypatch.setattr(cuda_driver, "driver_cuda_version", lambda driver=driver: driver)
        assert why in gpu_identity.no_gpu_reason() if why else gpu_identity.no_gpu_reason() is None


@pytest.mark.parametrize(
    ("program", "why"), [("\x7f", "ncu does not start: "), (DRIVER_ERROR, "by the driver: Not compatible.")]
)
def test_an_ncu_that_does_not_start_or_fails_costs_the_counters_alone(monkeypatch, tmp_path, program, why):
    (tmp_path / "ncu").write_text(program)
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("NCU", str(tmp_path / "ncu"))
    monkeypatch.setattr(
        counters.hardware_counters, "discover", lambda: {"gpu0": SimpleNamespace(require_capability=lambda: "9.0")}
    )
    assert why in counters.count_jobs("gpu0", [], tmp_path / "counters" / "kernels.ncu-rep")[0].refused_reason
