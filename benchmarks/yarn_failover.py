"""From SIGKILL of the ApplicationMaster to the next leader, while a job runs in a container that survives.

YARN notices the end of the container, allocates another one and starts the next attempt there; the jobmanager replays
the log and adopts the TaskExecutor. No task restarts: the aim is 0.
"""

from __future__ import annotations

import os
import time

from _report import conditions, median, report
from _scale import scaled
from _yarn import one_task, running_application

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.schemas import everyone, job_master, resource_manager, task_executor
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState
from tailrace.services.core.role import DISPATCHER

ROUNDS = int(os.environ.get("ROUNDS", scaled(5, least=1)))
MOST_ATTEMPTS = {
    "yarn.resourcemanager.am.max-attempts": "20",
    "yarn.resourcemanager.am.global.max-attempts": "20",
}
_SETTLED_S = 5.0
_LOOK_S = 0.01


class Watch:
    """What has happened so far."""

    def __init__(self) -> None:
        self.deployments = 0
        self.runs = False
        self.losses = 0
        self.led_at = 0.0
        self.registered_at = 0.0

    def __call__(self, record: Record) -> bool:
        match record.body:
            case everyone.LeaderElected(role=role) if role == DISPATCHER:
                self.led_at = record.header.time / 1e6
            case resource_manager.ApplicationMasterRegistered():
                self.registered_at = record.header.time / 1e6
            case task_executor.SubmitTask():
                self.deployments += 1
            case everyone.TaskExecutorLost():
                self.losses += 1
            case job_master.UpdateTaskExecutionState(execution_state=ExecutionState.RUNNING):
                self.runs = True
            case _:
                pass
        return False


def main() -> None:
    watch = Watch()
    parts: dict[str, list[float]] = {"container_s": [], "led_s": [], "registered_s": []}
    with (
        EmbeddedKafka() as kafka,
        EmbeddedYarn(settings=MOST_ATTEMPTS) as yarn,
        running_application(kafka, yarn, one_task("failover")) as application,
    ):
        follower = application.follower
        follower.until(lambda record: watch(record) or watch.runs, "a running task")
        for _ in range(ROUNDS):
            time.sleep(_SETTLED_S)
            before = application.processes()
            masters = [each for each in before if each.endswith("_000001")]
            killed = time.time()
            before[masters[-1]].kill()
            while not (fresh := set(application.processes()) - set(before)):
                time.sleep(_LOOK_S)
            parts["container_s"].append(application.processes()[fresh.pop()].create_time() - killed)
            follower.until(lambda record: watch(record) or watch.registered_at > killed, "a registration")  # noqa: B023
            parts["led_s"].append(watch.led_at - killed)
            parts["registered_s"].append(watch.registered_at - killed)
    figures = {
        **{key: median(values) for key, values in parts.items()},
        "task_restarts": watch.deployments - 1,
        "task_executors_lost": watch.losses,
    }
    notes = {
        "container_s": "SIGKILL -> the next jobmanager's process: YARN's part",
        "led_s": "SIGKILL -> the next LeaderElected",
        "registered_s": "SIGKILL -> ApplicationMasterRegistered, with the containers of the attempt before",
        "task_restarts": "aim: 0",
    }
    report("yarn_failover", figures, conditions(rounds=ROUNDS), notes)


if __name__ == "__main__":
    main()
