"""The program under the profiler: `python -m roofline.run.profiled TASK`, with the task as JSON.

It launches the walls of the instruction roofline first, each by itself, unless `walls` is false. Counters have `tasks`
too, each with `operator`, `operators` (the user's files), `job` and `cold`; `replay`, range or kernel; and `told`, the
file for what was declared of the cells of each task.
"""

import json
import sys
from pathlib import Path

from roofline.devices import discovery
from roofline.measure.counted_steps import launch
from roofline.operators import registry
from roofline.operators.base import Job
from roofline.records.files import write_text
from roofline.run.run_lock import end_with_run


def main(task: dict) -> None:
    end_with_run()
    device = discovery.open_device(task["device"])
    if task.get("walls", True):
        for kernel in device.wall_kernels():
            device.profile(kernel.launch, marked=False)
    told = []
    for one in task.get("tasks", ()):
        operator = registry.registered(one["operators"])[one["operator"]]
        told.append(launch(operator, device, Job.from_json(one["job"]), one["cold"], task["replay"]))
    if "told" in task:
        write_text(json.dumps(told), Path(task["told"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
