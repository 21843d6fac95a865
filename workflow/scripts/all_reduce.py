"""all_reduce: all-reduces between a GPU and another, by our kernels and by NCCL."""

from pathlib import Path
from typing import Any

from roofline.core.terms import UnsupportedError
from roofline.devices import discovery
from roofline.devices.gpu.all_reduce_pair import DTYPE, AllReducePair
from roofline.devices.gpu.gpu_device import GpuDevice
from roofline.devices.gpu.nccl import load_nccl, version_text
from roofline.measure import lock
from roofline.measure.all_reduce import measure_after_product, measure_ours
from roofline.measure.nccl_timing import EagerProcesses, measure_in_graphs
from roofline.records.all_reduce_record import AllReduceRecord
from roofline.records.bandwidth_record import Peer
from roofline.records.files import hash_results
from roofline.run.jobs import Stopwatch, job, write_and_say


def measure(name: str, peer: str, program: str) -> dict[str, Any]:
    """Return the fields of the record, or the reason why it is skipped.

    Raises ArithmeticError for a wrong sum, and TimeoutError if one card waits for the other in vain.
    """
    device = discovery.open_device(name, peer)
    assert isinstance(device, GpuDevice) and device.peer, "its rule names two GPUs"
    link = Peer(peer=peer, uuid=device.peer.uuid, **device.describe_peer_path())
    try:
        if reason := discovery.unsupported_reason(device.identity, DTYPE):
            raise UnsupportedError(reason)
        pair = AllReducePair(device)
    except UnsupportedError as error:
        return {"peer": link, "skipped_reason": str(error)}
    # Over PCIe they share switches and the host's bridges with other cards' transfers.
    with lock.hold_locks([] if link.link == "nvlink" else [lock.HOST_PATH_LOCK]):
        timed = list(measure_ours(device, pair))
        after_product = measure_after_product(device, pair, timed)
        version, reason = None, None
        try:
            nccl = load_nccl()
            version = version_text(nccl)
            with EagerProcesses(program, pair.sizes) as processes:
                timed += measure_in_graphs(device, pair, nccl)
                timed += processes.measure(nccl)
        except UnsupportedError as error:
            reason = str(error)
    nccl_fields = {"nccl_version": version, "nccl_skipped_reason": reason}
    return {"peer": link, "all_reduces": timed, "after_product": after_product, **nccl_fields}


if __name__ == "__main__":
    name, path = snakemake.wildcards.device, Path(snakemake.output[0])
    with job(f"{path.stem} {name}", snakemake):
        watch = Stopwatch()
        fields = measure(name, discovery.peer_name(path.stem) or "", snakemake.input.program)
        record = AllReduceRecord(
            device=name,
            name=path.stem,
            seals=hash_results([snakemake.input.prediction, snakemake.input.own_prediction]),
            **watch.taken(),
            **fields,
        )
        write_and_say(record, path, f"{path.stem} {name}")
