"""NCCL on one card of two, as a user calls it: `python nccl_server.py RANK BLOCKS SIZE...`.

It reads the identifier of the communicator, in hexadecimal, and prints the seconds of an all-reduce as `time_eager`
returns them, in JSON.
"""

import json
import sys

import cupy

from roofline.devices.gpu.nccl import load_nccl, time_eager
from roofline.run.run_lock import end_with_run

if __name__ == "__main__":
    end_with_run()
    rank, blocks, *sizes = map(int, sys.argv[1:])
    nccl, identifier = load_nccl(), bytes.fromhex(sys.stdin.readline())
    with cupy.cuda.Device(rank):
        print(json.dumps(time_eager(nccl, cupy, identifier, rank, sizes, blocks)))
