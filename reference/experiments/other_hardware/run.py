"""The model on hardware that its constants were not taken from: parts of a card, and another CPU.

    python reference/experiments/other_hardware/run.py FOLDER                 parts of the first GPU, up to a minute
    python reference/experiments/other_hardware/run.py FOLDER --device cpu    the CPU's default cells

Parts are CUDA green contexts of all, half and a quarter of the multiprocessors. Each is predicted as a card whose
vendor gives that many multiprocessors at the same clock, with the whole card's memory; the constants are as they are.
Run it from the repository's root, with the environment that `make` installs. Writes FOLDER/parts.json and parts.md, or
cpu.json and cpu.md. What fails is told there, and the rest goes on.
"""

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "workflow" / "scripts"))

PARTS = (1.0, 0.5, 0.25)
BUDGET_S = 50.0  # of all parts
ATTENTION = {"seq_lens": [256, 1024, 4096], "dtypes": ["fp32", "fp16"], "batch_sizes": [1, 64]}
PRODUCTS = (("fp16", 4096), ("fp16", 1024), ("bf16", 2048), ("fp32", 2048))


class NoPart(Exception):
    """Why a card has no such part, in one line."""


def called(function: str, result: tuple) -> tuple:
    """What a function of CUDA's driver returns beside its status. Raises NoPart where that is an error."""
    status, *values = result
    if int(status):
        raise NoPart(f"{function}: {getattr(status, 'name', status)}")
    return tuple(values)


def part_of(multiprocessors: int):
    """A stream on so many multiprocessors, as cuda-bindings has it, how many they are, and what must stay alive."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NoPart(f"cuda-bindings is not installed: {error}") from None
    needed = ("cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuDevResourceGenerateDesc", "cuGreenCtxCreate")
    missing = [name for name in (*needed, "cuGreenCtxStreamCreate") if not hasattr(driver, name)]
    if missing:
        raise NoPart(f"these cuda-bindings have no {', '.join(missing)}")
    (card,) = called("cuCtxGetDevice", driver.cuCtxGetDevice())
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    (whole,) = called("cuDeviceGetDevResource", driver.cuDeviceGetDevResource(card, kind))
    split = called("cuDevSmResourceSplitByCount", driver.cuDevSmResourceSplitByCount(1, whole, 0, multiprocessors))
    part = split[0][0]
    (description,) = called("cuDevResourceGenerateDesc", driver.cuDevResourceGenerateDesc([part], 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    (context,) = called("cuGreenCtxCreate", driver.cuGreenCtxCreate(description, card, flags))
    non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    (stream,) = called("cuGreenCtxStreamCreate", driver.cuGreenCtxStreamCreate(context, non_blocking, 0))
    return int(stream), part.sm.smCount, (context, stream)


@contextlib.contextmanager
def on_part(device, share: float):
    """The device on a share of its multiprocessors; all kernels of ours, CuPy's and cuBLAS' follow its stream."""
    whole = device.multiprocessors
    if share == 1:
        yield device
        return
    device.synchronize()
    address, count, alive = part_of(round(whole * share))
    before, name = device.stream, device.name
    device.stream, device.multiprocessors = device.xp.cuda.ExternalStream(address), count
    device.name = f"{name} part of {count} multiprocessors"
    device.stream.use()
    try:
        yield device
        device.synchronize()
    finally:
        before.use()
        device.stream, device.multiprocessors, device.name = before, whole, name
        del alive


def scaled(record, device, whole: int):
    """The record of a card with as many multiprocessors as the part has: the vendor's peaks scale, its memory not."""
    share = device.multiprocessors / whole
    peaks = {
        name: peak.model_copy(update={"tflops": peak.tflops * share, "derived": share != 1 or peak.derived})
        for name, peak in record.vendor.peaks.items()
    }
    return record.model_copy(
        update={
            "device": device.name,
            "name": f"{record.name}, {device.multiprocessors} of {whole} multiprocessors",
            "hardware": record.hardware | {"multiprocessors": device.multiprocessors},
            "vendor": record.vendor.model_copy(update={"peaks": peaks}),
        }
    )


def gpu_cells() -> list:
    from roofline.analysis.trial import Product, jobs
    from roofline.operators.decode_attention import DecodeAttention
    from roofline.run import settings

    config = settings.complete({"decode_attn": ATTENTION}).config
    products = [Product(dtype, {"m": size, "n": size, "k": size}) for dtype, size in PRODUCTS]
    return products + jobs(DecodeAttention(), config)


def cpu_cells(config) -> list:
    from roofline.analysis.trial import jobs
    from roofline.operators.decode_attention import DecodeAttention

    return jobs(DecodeAttention(), config)


def trials_of_parts(name: str) -> tuple[list, list[str]]:
    from roofline import devices
    from roofline.analysis import trial
    from roofline.devices.description import describe

    device, found, faults = devices.open_device(name), [], []
    whole, record = device.multiprocessors, describe(device)
    wanted = gpu_cells()
    start = time.monotonic()
    for place, share in enumerate(PARTS, 1):
        try:
            with on_part(device, share) as part:
                until = start + BUDGET_S * place / len(PARTS)
                found.append(trial.run(part, scaled(record, part, whole), wanted, until))
        except Exception as error:
            faults.append(f"{share:g} of the multiprocessors: {type(error).__name__}: {error}")
            print(faults[-1], flush=True)
    return found, faults


def trials_of_cpu() -> tuple[list, list[str]]:
    from roofline.devices import host

    host.use_all_cores()  # before anything loads NumPy
    from roofline import devices
    from roofline.analysis import trial
    from roofline.devices.description import describe
    from roofline.run import settings

    config = settings.complete({"devices": ["cpu"]}).config
    device = devices.open_device("cpu")
    return [trial.run(device, describe(device), cpu_cells(config), time.monotonic() + 2 * BUDGET_S)], []


def main() -> str | None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", help="cpu, or a GPU such as gpu0; by default the first GPU")
    given = parser.parse_args()
    on_cpu = given.device == "cpu"
    if on_cpu:
        found, faults = trials_of_cpu()
    else:
        from roofline import devices

        name = given.device or next((name for name in devices.discover() if name != "cpu"), None)
        if name is None:
            return "no GPU is here; --device cpu predicts and measures the CPU"
        found, faults = trials_of_parts(name)
    from roofline.records.files import write_text
    from roofline.report.trial_page import markdown

    kind = "cpu" if on_cpu else "parts"
    content = {"trials": [json.loads(one.model_dump_json()) for one in found], "faults": faults}
    write_text(json.dumps(content, indent=1) + "\n", given.folder / f"{kind}.json")
    pages = [f"## {one.name}\n\n{markdown(one)}" for one in found] + [f"- not measured: {fault}\n" for fault in faults]
    write_text("# Predicted on other hardware\n\n" + "\n".join(pages), given.folder / f"{kind}.md")
    print("\n".join(pages))
    return None if found else "nothing was measured"


if __name__ == "__main__":
    sys.exit(main())
