"""The cost of one more event in a cluster that is as full as it can get, beside the cost at a tenth of the size.

Everything is folded in memory by the real roles, in one thread, without servers:

- `program`: a submission while 10,000 programs of 100 clients wait to be built (evolve, decide, instructions);
- `start`: the start of a job of 10,000 vertices with 5 subtasks each, that share slots or do not (evolve and decide);
- `map`: a persistent map of as many entries as that job has subtasks, written at once and read: the limit of `start`;
- `hash`: the state hash after one more event, with 300,000 ended jobs in the states (every 100,000 offsets);
- `end`: the end of a job with 300,000 ended ones, until its client is informed;
- `everyone`: an event to all roles, after 10,000 TaskExecutors have come and gone, in a replica of all roles;
- `lost`: the loss of a TaskExecutor while 10,000 jobs wait for slots, in the ResourceManager and all JobMasters.

Costs of one event have to be flat; what all live jobs read has to be linear. The start of a job has to grow as its
persistent maps, whose entries cost more in a larger map: it is deeper, and the processor's cache does not hold it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from _report import conditions, report
from _scale import scaled
from immutables import Map

from tailrace.pipelines.api.build import build
from tailrace.schemas import dispatcher, everyone, job_master, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import EVERYONE, Record
from tailrace.schemas.types import (
    EntryPoint,
    ExecutionState,
    JobGraph,
    JobStatus,
    JobVertex,
    OperatorConfig,
)
from tailrace.services.core.replica import Replica, tune_gc_for_replay
from tailrace.services.core.role import OutgoingEvent, with_headers
from tailrace.services.dispatcher import Dispatcher
from tailrace.services.dispatcher.state import Job, Phase
from tailrace.services.job_master import JobMaster
from tailrace.services.job_master.state import TerminatedJob
from tailrace.services.resource_manager import ResourceManager
from tailrace.services.simulation.task_events import register_event
from tailrace.services.snapshots.state_hash import RepeatedStateHasher
from tailrace.services.task_executor import TaskExecutor

NOW = 1_700_000_000_000_000
MASTERS = ("dispatcher", "resource_manager")
REPEAT = 5


class Log:
    """A replica of all roles, and the events that it folds."""

    def __init__(self) -> None:
        self.replica = Replica([Dispatcher(), ResourceManager(), JobMaster(), TaskExecutor()])
        self.replica.telling = False
        self.now = NOW
        self._numbers = itertools.count()
        for role in MASTERS:
            self.lead(role)

    def lead(self, role: str) -> None:
        """Appends the claim of a leader."""
        epoch = self.replica.leadership.epoch(role) + 1
        body = everyone.LeaderElected(role=role, epoch=epoch, address="bench", session=f"{role}/{epoch}")
        self.send(role, EVERYONE, body, epoch=epoch)

    def send(
        self, sender: str, recipient: str, body: Body, *, cause: int | None = None, epoch: int | None = None
    ) -> int:
        """Appends one event; returns its offset."""
        offset = self.replica.offset
        (event,) = with_headers(
            [OutgoingEvent(recipient, body, cause)],
            cluster="c",
            sender=sender,
            epoch=self.replica.leadership.epoch(sender) if epoch is None else epoch,
            decided_at=offset,
            now=self.now,
            numbers=self._numbers,
        )
        self.replica.apply(Record(offset + 1, event.header, event.body))
        return offset + 1

    def decide(self, role: str) -> list[OutgoingEvent]:
        """Appends what a role owes, and returns it."""
        owed = self.replica.role(role).decide(self.replica.states[role], self.now)
        for event in owed:
            self.send(role, event.recipient, event.body, cause=event.cause)
        return owed

    def settle(self, *roles: str) -> None:
        """Lets the roles decide until they owe nothing."""
        while sum(len(self.decide(role)) for role in roles):
            pass


def microseconds(run: Callable[[], object], repeat: int = REPEAT) -> float:
    """Returns the CPU time of a call; the least of several, because noise only adds time."""
    times = []
    for _ in range(repeat):
        start = time.process_time_ns()
        run()
        times.append(time.process_time_ns() - start)
    return min(times) / 1e3


def program_us(count: int) -> float:
    """A submission while so many programs wait."""
    log = Log()
    options = {"dispatcher.max-waiting-programs": "1000000", "dispatcher.max-jobs": "1000000"}
    log.send("dispatcher", EVERYONE, everyone.ConfigurationChanged(configuration=options))
    entry_point = EntryPoint(target="app:main", arguments=(), configuration={}, python_files=())

    def submit(number: int) -> None:
        body = dispatcher.SubmitJob(job_id=f"j{number}", job_graph=None, entry_point=entry_point)
        log.send(f"client/{number % 100}", "dispatcher", body)
        log.decide("dispatcher")
        log.replica.role("dispatcher").instructions(log.replica.states["dispatcher"])

    for number in range(count):
        submit(number)
    more = itertools.count(count)
    return microseconds(lambda: submit(next(more)), 50)


def wide_graph(vertices: int, *, shared: bool) -> JobGraph:
    """Returns independent pipelines of a source and a sink."""

    def vertex(number: int) -> JobVertex:
        source = OperatorConfig(
            operator_id=f"s{number}", name="s", kind="generator", code=b"x", location="",
            parameters='{"count": 1, "rate": null, "output_type": "str"}',
        )  # fmt: skip
        sink = OperatorConfig(
            operator_id=f"p{number}", name="p", kind="print", code=b"", location="",
            parameters='{"identifier": null}', upstream=f"s{number}",
        )  # fmt: skip
        return JobVertex(
            vertex_id=f"v{number}", name="v", operators=(source, sink), parallelism=5, max_parallelism=128,
            slot_sharing_group="default" if shared else "",
        )  # fmt: skip

    return JobGraph(
        name="wide",
        vertices=tuple(vertex(number) for number in range(vertices)),
        edges=(),
        configuration={},
        python_files=(),
    )


def start_us(vertices: int, *, shared: bool) -> float:
    """The start of a job, and its requests for slots."""
    graph = wide_graph(vertices, shared=shared)

    def start() -> None:
        log = Log()
        log.send("dispatcher", "job_master/j", job_master.StartJob(job_id="j", job_graph=graph))
        log.decide("job_master/j")
        log.send("resource_manager", "job_master/j", job_master.JobManagerRegistrationSuccess(job_id="j"))
        role = log.replica.role("job_master/j")
        if len(role.decide(log.replica.states["job_master/j"], log.now)) < 5:
            raise RuntimeError("the job requests no slots")

    return microseconds(start, 2)


def map_us(vertices: int) -> float:
    """The maps of such a job, without their content: by subtask, written at once, and each entry read."""
    entries = {f"{number * 2654435761 % (1 << 64):032x}": number for number in range(5 * vertices)}

    def write_and_read() -> int:
        written = Map(entries)
        return sum(written[key] for key in entries)

    return microseconds(write_and_read)


def ended(count: int) -> tuple[Log, JobGraph]:
    """Returns a cluster that remembers so many ended jobs."""
    log, graph = Log(), build("tailrace.pipelines.examples.window_word_count:main", ["--port", "9999"], 1)
    options = {"jobstore.max-capacity": "1000000", "dispatcher.max-jobs": "1000000"}
    log.send("dispatcher", EVERYONE, everyone.ConfigurationChanged(configuration=options))
    state = log.replica.states["dispatcher"]
    for number in range(count):
        job_id = f"wordcount-{number:032x}"
        job = Job(
            job_id=job_id, requester=f"client/{number}", phase=Phase.ENDED, cause=1, name="wordcount",
            status=JobStatus.FINISHED, ended_at=NOW,
        )  # fmt: skip
        state = state.put(job)
        log.replica.states[f"job_master/{job_id}"] = _summary(job_id)
    log.replica.states["dispatcher"] = state
    return log, graph


def _summary(job_id: str) -> TerminatedJob:
    return TerminatedJob(
        job_id=job_id,
        status=JobStatus.FINISHED,
        reason=None,
        name="wordcount",
        required_slots=1,
        tasks=_NO_TASKS,
    )


def end_job(log: Log, job_id: str, graph: JobGraph) -> None:
    """Runs a job from its submission to its end, without slots."""
    log.send(f"client/{job_id[-8:]}", "dispatcher", dispatcher.SubmitJob(job_id=job_id, job_graph=graph))
    log.decide("dispatcher")
    reached = dispatcher.JobReachedTerminalState(
        job_id=job_id, status=JobStatus.FINISHED, reason=None, accumulators={}
    )
    log.replica.states[f"job_master/{job_id}"] = _summary(job_id)
    log.replica._forget(f"job_master/{job_id}")
    log.send(f"job_master/{job_id}", "dispatcher", reached)
    log.decide("dispatcher")


def hash_and_end_us(count: int) -> tuple[float, float]:
    """The hash after one more event, and one more job, with so many ended jobs."""
    log, graph = ended(count)
    hasher = RepeatedStateHasher(log.replica)
    hasher.hashes()
    more = itertools.count()

    def change_and_hash() -> float:
        end_job(log, f"more-{next(more):032x}", graph)
        start = time.process_time_ns()
        hasher.hashes()
        return (time.process_time_ns() - start) / 1e3

    hashing = min(change_and_hash() for _ in range(REPEAT))
    return hashing, microseconds(lambda: end_job(log, f"other-{next(more):032x}", graph), 20)


def everyone_us(count: int) -> float:
    """An event to all roles after so many TaskExecutors have come and gone."""
    log = Log()
    for number in range(count):
        resource_id = f"te-{number}"
        worker = f"task_executor/{resource_id}"
        log.lead(worker)
        owed = register_event(resource_id, 1)
        log.send(worker, owed.recipient, owed.body)
        log.decide("resource_manager")
        log.decide(worker)
        gone = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason="it was asked to stop")
        log.send(worker, "resource_manager", gone)
        log.settle("resource_manager")
    body = everyone.ConfigurationChanged(configuration={})
    return microseconds(lambda: log.send("dispatcher", EVERYONE, body), 20)


def lost_us(count: int) -> float:
    """The loss of a TaskExecutor while so many jobs wait for slots."""
    log = Log()
    for number in range(50):
        worker = f"task_executor/te-{number}"
        log.lead(worker)
        owed = register_event(f"te-{number}", 1)
        log.send(worker, owed.recipient, owed.body)
        log.decide("resource_manager")
        log.decide(worker)
    for number in range(count):
        job = f"job_master/j{number}"
        log.send("dispatcher", job, job_master.StartJob(job_id=f"j{number}", job_graph=_SMALL))
        log.send(job, "resource_manager", resource_manager.RegisterJobManager(job_id=f"j{number}"))
        body: Any = resource_manager.RequestSlot(job_id=f"j{number}", allocation_id=f"a{number}")
        log.send(job, "resource_manager", body)
        if number < 50:
            log.decide("resource_manager")
    log.settle("resource_manager")
    left = iter(range(50))

    def lose() -> None:
        resource_id = f"te-{next(left)}"
        gone = resource_manager.DisconnectTaskManager(resource_id=resource_id, reason="it was asked to stop")
        log.send(f"task_executor/{resource_id}", "resource_manager", gone)
        log.settle("resource_manager")

    return microseconds(lose, 20)


_NO_TASKS: Map[ExecutionState, int] = Map()
_SMALL = wide_graph(1, shared=True)


def main() -> None:
    tune_gc_for_replay()
    figures: dict[str, float] = {}

    def measure(name: str, count: int, cost: Callable[[int], float], unit: str = "us") -> None:
        tenth, whole = cost(max(1, count // 10)), cost(count)
        factor = 1e6 if unit == "s" else 1.0
        figures[f"{name}_{unit}"] = whole / factor
        figures[f"{name}_tenth_{unit}"] = tenth / factor
        figures[f"{name}_ratio"] = whole / tenth

    measure("program", scaled(10_000, least=100), program_us)
    measure("start_shared", scaled(10_000, least=100), lambda count: start_us(count, shared=True), "s")
    measure("start_alone", scaled(10_000, least=100), lambda count: start_us(count, shared=False), "s")
    measure("map", scaled(10_000, least=100), map_us, "s")
    jobs = scaled(300_000, least=1_000)
    (hash_tenth, end_tenth), (hash_whole, end_whole) = hash_and_end_us(jobs // 10), hash_and_end_us(jobs)
    for name, whole, tenth in (("hash", hash_whole, hash_tenth), ("end", end_whole, end_tenth)):
        figures |= {f"{name}_us": whole, f"{name}_tenth_us": tenth, f"{name}_ratio": whole / tenth}
    measure("everyone", scaled(10_000, least=100), everyone_us)
    measure("lost", scaled(10_000, least=100), lost_us)
    notes = {
        "program_us": "a submission while 10,000 programs wait; aim: flat",
        "start_shared_s": "10,000 vertices x 5 subtasks in 5 slots; aim: the ratio of `map`",
        "start_alone_s": "10,000 vertices x 5 subtasks in 50,000 slots; aim: the ratio of `map`",
        "map_s": "50,000 entries of a persistent map, written at once and read",
        "hash_us": "a state hash with 300,000 ended jobs, every 100,000 offsets",
        "end_us": "one more job with 300,000 ended jobs; aim: flat",
        "everyone_us": "an event to all roles after 10,000 TaskExecutors have gone; aim: flat",
        "lost_us": "the loss of a TaskExecutor while 10,000 jobs wait for slots, each of which reads it; aim: linear",
    }
    report("worst_cases", figures, conditions(repeat=REPEAT), notes)


if __name__ == "__main__":
    main()
