"""What a fork is given of the history that it begins with; real hosts go on from there with simulated shells."""

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
from tailrace.services.history.archive.submission_positions import submission_positions
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
from tailrace.services.simulation.fork_members import (
    CorruptMembersFile,
    ForkMember,
    members_path,
    read_members,
    write_members,
)
from tailrace.services.simulation.fork_settings import read_fork_members, read_fork_settings, write_settings
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
    """Two TaskExecutors and a job; a third one was lost."""
    studio = HistoryBuilder(CONFIGURATION)
    studio.start_workers("te-1", "te-2", "te-3", slots=2)
    studio.schedule_at(1, studio.submit, "j1", 2)
    studio.schedule_at(5, studio.workers.kill, "te-3", "killed", seen=True)
    return studio.run(30)


def test_the_task_executors_that_are_registered_are_simulated_as_they_registered() -> None:
    members = read_fork_members(history().replica())
    assert [(each.resource_id, each.slots) for each in members] == [("te-1", 2), ("te-2", 2)]
    assert all(each.configuration["slot.request.timeout"] == "20 s" for each in members)


def test_a_fork_goes_by_the_options_that_the_log_has(tmp_path: Path) -> None:
    settings = read_fork_settings(
        history().replica(), "trial", 90_000_000, {"bootstrap.servers": "kafka:9092"}
    )
    path = write_settings(tmp_path, settings)
    assert yaml.safe_load(path.read_text())["cluster.id"] == "trial"
    found = load_configuration([], [], environment={"TAILRACE_HOME": str(tmp_path)})
    said = {each.key: each.text for each in found.settings()}
    assert said["simulation.enabled"] == "true"
    assert said["simulation.clock-behind"] == "90 s"
    assert said["slot.request.timeout"] == "20 s"
    assert said["bootstrap.servers"] == "kafka:9092"
    # What has its default, and what is a path of the other cluster.
    assert "cluster.evenly-spread-out-slots" not in said
    assert "state.checkpoints.dir" not in said


def test_masters_that_were_elected_lead_the_other_cluster() -> None:
    studio = HistoryBuilder()
    claim = LeaderElected(role=DISPATCHER, epoch=0, address="a:1", session="elected", elected_by="zookeeper")
    studio.world.lead(claim)
    replica = studio.run(1).replica()
    assert replica.leadership.leaders[DISPATCHER].elected_by == "zookeeper"
    assert read_fork_settings(replica, "trial")["high-availability.abandon-election"] == "true"


def test_nothing_is_known_of_an_empty_history() -> None:
    replica = history().at(-1).replica()
    assert read_fork_members(replica) == []
    assert submission_positions(replica) == {}
    assert read_fork_settings(replica, "trial") == {"cluster.id": "trial", "simulation.enabled": "true"}


def test_members_are_kept_in_the_home(tmp_path: Path) -> None:
    assert read_members(tmp_path) == []
    members = [ForkMember("te-1", 2), ForkMember("te-2", 4, configuration={"a": "b"})]
    write_members(tmp_path, members)
    assert read_members(tmp_path) == members
    members_path(tmp_path).write_text("[{]")
    with pytest.raises(CorruptMembersFile, match=r"simulated\.json can't be read .* fork the cluster again"):
        read_members(tmp_path)


@contextmanager
def running(log: MemoryEventLog, host: Host, shells: dict[str, Shell]) -> Iterator[None]:
    """A host on a thread of its own."""
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
    """The first such event behind an offset."""
    tail, end = log.tail(start), time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        for record in tail.poll(0.1):
            if what(record):
                return record
    raise TimeoutError


def test_real_hosts_go_on_from_there() -> None:
    begun = history()
    log = MemoryEventLog(Codec("fork.log"), topic="fork.log")
    log.append([Event(each.header, each.body) for each in begun.records])
    fork = log.end()
    members = read_fork_members(begun.replica())
    own = {address(TASK_EXECUTOR, each.resource_id): each for each in members}
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
        for each, member in own.items():
            workers.emit(each, register_event(member.resource_id, member.slots))
        again = wait_for(log, fork, is_running)
        assert again.header.recipient == "job_master/j1", "what ran at the place runs on"
        header = Header(event_id="s", time=1, sender="client/x", sender_epoch=0, recipient=DISPATCHER)
        log.append([Event(header, dispatcher.SubmitJob(job_id="j2", job_graph=graph(2)))])
        wait_for(log, fork, lambda each: is_running(each) and each.header.recipient == "job_master/j2")
        log.append([Event(header, dispatcher.CancelJob(job_id="j1"))])
        wait_for(log, fork, lambda each: each.body.AVRO_NAME == "tailrace.client.JobFinished")
    said = [each for batch in read_to_end(log, fork) for each in batch]
    submitted = {each.header.sender for each in said if each.body.AVRO_NAME.endswith(".SubmitTask")}
    assert submitted == {"job_master/j2"}
    assert not [each for each in said if each.body.AVRO_NAME.endswith("TaskExecutorLost")]
