"""The program under the profiler: `python counter_program.py TASK`, with the task as JSON.

The task's `tasks` have for each counted job `operator`, `operators` (the user's files), `job`, `cold`, and whether
`every` implementation is counted. Without them the marker alone is launched, which shows whether counters may be read.
The last line that the program prints is what it declares of the cells, in a list for each task.
"""

import json
import sys

from roofline.devices import discovery
from roofline.devices.base import is_gpu
from roofline.measure import lock
from roofline.measure.hardware_counters import launch_profiled
from roofline.measure.operator_job import JobPlan
from roofline.operators import registry
from roofline.operators.base import Job
from roofline.run import run_lock
from roofline.run.jobs import say_waiting


def run_counter_tasks(task: dict) -> None:
    """Launch the cells of a task under the profiler, in the turn of their GPU, and print what is declared of them."""
    run_lock.end_with_run()
    run_lock.take_turn([lock.gpu_lock_name(discovery.discover()[task["device"]].uuid)], [], say_waiting)
    device = discovery.open_device(task["device"])
    assert is_gpu(device), "a CPU has no Nsight Compute"
    if not task["tasks"]:
        device.run_under_profiler(lambda: None)
    declared = []
    for counter_task in task["tasks"]:
        operator = registry.collect_operators(counter_task["operators"])[counter_task["operator"]]
        plan = JobPlan(operator, device, Job.from_json(counter_task["job"]), None, cold=counter_task["cold"])
        declared.append(launch_profiled(plan, counter_task["every"]))
    print(json.dumps(declared))


if __name__ == "__main__":
    run_counter_tasks(json.loads(sys.argv[1]))
