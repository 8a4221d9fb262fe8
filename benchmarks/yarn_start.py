"""From the submission of an application to its slots, and how much of that is YARN's.

A cluster of one job (`tailrace run -t yarn-application`) on Hadoop's mini cluster: the ApplicationMaster's container,
the jobmanager, the container of a TaskExecutor, its registration. YARN's are two parts: from the submission to the
start of the jobmanager's process, and from the request for the TaskExecutor's container to the start of its process.
In both the NodeManager copies the files from HDFS, and a shell prepares the container. Spark starts on demand, so not
here.
"""

from __future__ import annotations

import os

from _report import conditions, median, report
from _scale import scaled
from _yarn import one_task, running_application

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.schemas import job_master, resource_manager
from tailrace.schemas.event import Record
from tailrace.schemas.types import ExecutionState

ROUNDS = int(os.environ.get("ROUNDS", scaled(5, least=1)))


def measure(kafka: EmbeddedKafka, yarn: EmbeddedYarn, name: str) -> dict[str, float]:
    """Returns the seconds of each part of one start."""
    times: dict[str, float] = {}
    containers = list[str]()

    def is_running(record: Record) -> bool:
        body = record.body
        times.setdefault(body.AVRO_NAME.rpartition(".")[2], record.header.time / 1e6)
        if isinstance(body, resource_manager.WorkerStarted):
            containers.append(body.address.rpartition(":")[2])
        return (
            isinstance(body, job_master.UpdateTaskExecutionState)
            and body.execution_state is ExecutionState.RUNNING
        )

    with running_application(kafka, yarn, one_task(name)) as application:
        running = application.follower.until(is_running, "a running task").header.time / 1e6
        led, asked, reported = (times[each] for each in ("LeaderElected", "StartWorker", "SendSlotReport"))
        container = containers[0]
        processes = application.processes()
        worker = processes[container].create_time()
        master = next(process for each, process in processes.items() if each != container).create_time()
        yarns = (master - application.submitted) + (worker - asked)
        return {
            "slots_s": reported - application.submitted,
            "yarn_s": yarns,
            "yarn_share": yarns / (reported - application.submitted),
            "master_container_s": master - application.submitted,
            "jobmanager_leads_s": led - master,
            "request_s": asked - led,
            "worker_container_s": worker - asked,
            "taskexecutor_registers_s": reported - worker,
            "task_runs_s": running - application.submitted,
            "checks_and_upload_s": application.checked_s,
            "am_running_s": application.running_s,
        }


def main() -> None:
    with EmbeddedKafka() as kafka, EmbeddedYarn() as yarn:
        rounds = [measure(kafka, yarn, f"start-{number}") for number in range(ROUNDS)]
    figures = {key: median([each[key] for each in rounds]) for key in rounds[0]}
    notes = {
        "slots_s": "submitApplication -> SendSlotReport",
        "yarn_s": "of that, both containers: allocation, files from HDFS, launch",
        "master_container_s": "submitApplication -> the jobmanager's process",
        "jobmanager_leads_s": "the jobmanager's process -> LeaderElected",
        "request_s": "LeaderElected -> StartWorker: the job's graph is built, its slots are requested",
        "worker_container_s": "StartWorker -> the TaskExecutor's process; the ApplicationMaster registers meanwhile",
        "taskexecutor_registers_s": "the TaskExecutor's process -> SendSlotReport",
        "task_runs_s": "submitApplication -> the task is RUNNING",
        "checks_and_upload_s": "before the submission: nodes, queue, HDFS, staging directory",
        "am_running_s": "submitApplication -> YARN reports RUNNING",
    }
    report("yarn_start", figures, conditions(rounds=ROUNDS), notes)


if __name__ == "__main__":
    main()
