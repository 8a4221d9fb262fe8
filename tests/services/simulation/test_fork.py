"""A fork gets the present state of its history; real hosts continue from there with simulated shells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from polling import TIMEOUT_S

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.event import Event, Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import ExecutionState, Header
from tailrace.services.configuration import load_configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Shell,
    address,
)
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.host.host import Host
from tailrace.services.job_master import JobMaster
from tailrace.services.log import Codec
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.simulation.fake_effects import (
    HeartbeatOnlyEffects,
    NoOpTaskExecutorEffects,
    NoTopicJobMasterEffects,
)
from tailrace.services.simulation.fork import (
    CorruptMembersFile,
    ForkMember,
    members_path,
    read_fork_members,
    read_fork_settings,
    read_members,
    write_members,
    write_settings,
)
from tailrace.services.simulation.task_events import register_event
from tailrace.services.task_executor import TaskExecutor

from ..simulated_cluster.cluster import graph
from .what_if.history_builder import HistoryBuilder, MemoryHistory

CONFIGURATION = {
    "slot.request.timeout": "20 s",
    "cluster.evenly-spread-out-slots": "false",
    "execution.checkpointing.interval": "10 s",
}


def history() -> MemoryHistory:
    """Returns a history with two TaskExecutors and a job; a third TaskExecutor was lost."""
    studio = HistoryBuilder(CONFIGURATION)
    studio.start_workers("te-1", "te-2", "te-3", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(5, studio.workers.kill, "te-3", "killed", seen=True)
    return studio.run(30)


def test_registered_task_executors_are_simulated_with_their_registration() -> None:
    members = read_fork_members(history().replica())
    assert [(member.resource_id, member.slots) for member in members] == [("te-1", 2), ("te-2", 2)]
    assert all(member.configuration["slot.request.timeout"] == "20 s" for member in members)


def test_fork_uses_options_in_log(tmp_path: Path) -> None:
    settings = read_fork_settings(
        history().replica(), "trial", 90_000_000, {"bootstrap.servers": "kafka:9092"}
    )
    path = write_settings(tmp_path, settings)
    assert yaml.safe_load(path.read_text())["cluster.id"] == "trial"
    configuration = load_configuration([], [], environment={"TAILRACE_HOME": str(tmp_path)})
    output = {setting.key: setting.text for setting in configuration.settings()}
    assert output["simulation.enabled"] == "true"
    assert output["simulation.clock-behind"] == "90 s"
    assert output["slot.request.timeout"] == "20 s"
    assert output["bootstrap.servers"] == "kafka:9092"
    # What has its default, and what is a path of the other cluster.
    assert "cluster.evenly-spread-out-slots" not in output
    assert "state.checkpoints.dir" not in output


def test_elected_masters_lead_fork() -> None:
    studio = HistoryBuilder()
    claim = LeaderElected(role=DISPATCHER, epoch=0, address="a:1", session="elected", elected_by="zookeeper")
    studio.world.lead(claim)
    replica = studio.run(1).replica()
    assert replica.leadership.leaders[DISPATCHER].elected_by == "zookeeper"
    assert read_fork_settings(replica, "trial")["high-availability.abandon-election"] == "true"


def test_empty_history_gives_no_members() -> None:
    replica = history().at(-1).replica()
    assert read_fork_members(replica) == []
    assert read_fork_settings(replica, "trial") == {"cluster.id": "trial", "simulation.enabled": "true"}


def test_members_are_stored_in_home(tmp_path: Path) -> None:
    assert read_members(tmp_path) == []
    members = [ForkMember("te-1", 2), ForkMember("te-2", 4, configuration={"a": "b"})]
    write_members(tmp_path, members)
    assert read_members(tmp_path) == members
    members_path(tmp_path).write_text("[{]")
    with pytest.raises(CorruptMembersFile, match=r"simulated\.json can't be read .* fork the cluster again"):
        read_members(tmp_path)


@contextmanager
def running(log: MemoryEventLog, host: Host, shells: dict[str, Shell]) -> Iterator[None]:
    """A host in a thread of its own."""
    stop = threading.Event()
    thread = threading.Thread(target=host.run, args=(stop, shells), daemon=True)
    thread.start()
    try:
        assert host.leading.wait(TIMEOUT_S)
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
        host.close()


def wait_for(log: MemoryEventLog, start: int, what: Callable[[Record], bool]) -> Record:
    """Waits for the first such event after an offset."""
    tail, end = log.tail(start), time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        for record in tail.poll(0.1):
            if what(record):
                return record
    raise TimeoutError


def test_real_hosts_continue_from_end_of_history() -> None:
    memory_history = history()
    log = MemoryEventLog(Codec("fork.log"), topic="fork.log")
    log.append([Event(record.header, record.body) for record in memory_history.records])
    fork = log.end()
    members = read_fork_members(memory_history.replica())
    own = {address(TASK_EXECUTOR, member.resource_id): member for member in members}
    masters = Host(
        log,
        Replica([Dispatcher(), ResourceManager(), JobMaster()]),
        cluster="trial",
        leads=(DISPATCHER, RESOURCE_MANAGER),
        process_address="masters",
        session="masters of the fork",
    )
    workers = Host(
        log,
        Replica([TaskExecutor()], only=own.__contains__),
        cluster="trial",
        leads=tuple(own),
        process_address="workers",
        session="workers of the fork",
        concerns=tuple(own),
    )
    of_masters: dict[str, Shell] = {
        JOB_MASTER: NoTopicJobMasterEffects(masters.emit),
        RESOURCE_MANAGER: HeartbeatOnlyEffects(lambda *_: None),
    }

    def is_running(record: Record) -> bool:
        body = record.body
        return (
            isinstance(body, job_master.UpdateTaskExecutionState)
            and body.execution_state is ExecutionState.RUNNING
        )

    with (
        running(log, masters, of_masters),
        running(log, workers, {TASK_EXECUTOR: NoOpTaskExecutorEffects(workers.emit)}),
    ):
        for item, member in own.items():
            workers.emit(item, register_event(member.resource_id, member.slots))
        again = wait_for(log, fork, is_running)
        assert again.header.recipient == "job_master/j1", "what ran at the place runs on"
        header = Header(event_id="s", time=1, sender="client/x", sender_epoch=0, recipient=DISPATCHER)
        log.append([Event(header, dispatcher.SubmitJob(job_id="j2", job_graph=graph(2)))])
        wait_for(log, fork, lambda record: is_running(record) and record.header.recipient == "job_master/j2")
        log.append([Event(header, dispatcher.CancelJob(job_id="j1"))])
        wait_for(log, fork, lambda entry: entry.body.AVRO_NAME == "tailrace.client.JobFinished")
    records = [record for batch in read_to_end(log, fork) for record in batch]
    submitted = {
        element.header.sender for element in records if element.body.AVRO_NAME.endswith(".SubmitTask")
    }
    assert submitted == {"job_master/j2"}
    assert not [value for value in records if value.body.AVRO_NAME.endswith("TaskExecutorLost")]
