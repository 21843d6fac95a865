"""The program under the profiler: `python counter_program.py TASK`, with the task as JSON. The last line is what it declares.

`tasks` has for each counted cell `operator`, `operators` (the user's files), `job` and `cold`. Without tasks the marker
alone is launched, which shows whether counters may be read.
"""

import json
import sys

from roofline.devices import discovery
from roofline.measure import lock
from roofline.measure.hardware_counters import launch_profiled
from roofline.operators import registry
from roofline.operators.base import Job
from roofline.run import run_lock


def run_counter_tasks(task: dict) -> None:
    run_lock.end_with_run()
    run_lock.take_turn([lock.gpu_lock_name(discovery.discover()[task["device"]].uuid)], [])
    device = discovery.open_device(task["device"])
    if not task["tasks"]:
        device.run_under_profiler(lambda: None)
    declared = [
        launch_profiled(
            registry.collect_operators(one["operators"])[one["operator"]],
            device,
            Job.from_json(one["job"]),
            one["cold"],
        )
        for one in task["tasks"]
    ]
    print(json.dumps(declared))


if __name__ == "__main__":
    run_counter_tasks(json.loads(sys.argv[1]))
