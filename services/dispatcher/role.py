"""The Dispatcher's evolve and decide (documents 000 and 004; Flink's Dispatcher)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ...pipelines.graph import job_options
from ...pipelines.graph.validation import validate
from ...schemas import client, dispatcher, everyone, job_master, resource_manager
from ...schemas.event import Record
from ...schemas.ids import is_id
from ...schemas.states import JOB_ENDS
from ...schemas.types import EntryPoint, JobStatus
from ..roles import (
    DISPATCHER,
    JOB_MASTER,
    RESOURCE_MANAGER,
    IllegalEvent,
    Instruction,
    Owed,
    Steps,
    Time,
    address,
    unchanged,
)
from .state import DispatcherState, Ending, Job, Phase, Refusal

_REASONS = 5
_OWING = frozenset({Phase.ADMITTED, Phase.ACCEPTED, Phase.CANCEL_REQUESTED, Phase.TERMINATED, Phase.BUILDING})


class BuildJobGraph(Instruction, frozen=True):
    """Run the program that the entry point names until it has built its graph."""

    job_id: str
    entry_point: EntryPoint
    parallelism: int | None
    cause: int

    @property
    def key(self) -> str:
        return f"build/{self.job_id}/{self.cause}"


class Dispatcher:
    """The role; there is one state of it in a cluster."""

    kind = DISPATCHER

    def initial(self, role_address: str) -> DispatcherState:
        return DispatcherState()

    def evolve(self, state: DispatcherState, record: Record) -> DispatcherState:
        header = record.header
        if header.origin is not None:
            if header.origin.offset < state.positions.get(header.origin.partition, 0):
                # Two leaders may admit the same submission around a change of leadership; the first one counts.
                return state
            state = _admitted(state, header.origin.partition, header.origin.offset)
        return _STEPS.take(state, record)

    def decide(self, state: DispatcherState, now: Time) -> list[Owed]:
        owed: list[tuple[tuple[int, str], Owed]] = []
        for offset, refusal in state.refusals.items():
            owed.append(((offset, ""), _refusal(offset, refusal)))
        for job_id, offset in state.owing.items():
            # One event may concern many jobs, as the end of the cluster does.
            owed += [((offset, job_id), each) for each in _owed_for(state.jobs[job_id])]
        owed.sort(key=lambda pair: pair[0])
        return [each for _, each in owed] + _owed_for_ending(state)

    def deadline(self, state: DispatcherState) -> Time | None:
        return None

    def instructions(self, state: DispatcherState) -> Sequence[Instruction]:
        building = [
            state.jobs[job_id] for job_id in state.owing if state.jobs[job_id].phase is Phase.BUILDING
        ]
        return [
            BuildJobGraph(job.job_id, job.entry_point, job.parallelism, job.cause)
            for job in sorted(building, key=lambda job: job.cause)
            if job.entry_point is not None
        ]


def _admitted(state: DispatcherState, partition: int, offset: int) -> DispatcherState:
    # A refusal may come into the log behind what was admitted after it.
    position = max(offset + 1, state.positions.get(partition, 0))
    return replace(state, positions=state.positions.set(partition, position))


def _put(state: DispatcherState, job: Job) -> DispatcherState:
    owing = state.owing
    if job.phase in _OWING:
        owing = owing.set(job.job_id, job.cause)
    elif job.job_id in owing:
        owing = owing.delete(job.job_id)
    live = state.live
    if job.phase is Phase.ENDED:
        live = live.delete(job.job_id)
    elif job.job_id not in live:
        live = live.set(job.job_id, None)
    return replace(state, jobs=state.jobs.set(job.job_id, job), owing=owing, live=live)


def _submission_refused(
    state: DispatcherState, _record: Record, body: dispatcher.SubmissionRefused
) -> DispatcherState:
    return _admitted(state, body.source.partition, body.source.offset)


def _graph_failed(state: DispatcherState, record: Record, body: dispatcher.JobGraphFailed) -> DispatcherState:
    return _refused(state, record, _job(state, record, body.job_id, Phase.BUILDING), body.reason)


def _accepted(state: DispatcherState, record: Record, body: client.JobAccepted) -> DispatcherState:
    return _put(state, replace(_job(state, record, body.job_id, Phase.ADMITTED), phase=Phase.ACCEPTED))


def _ending_passed_on(
    state: DispatcherState, _record: Record, _body: resource_manager.ShutDownCluster
) -> DispatcherState:
    return replace(state, ending=state.ending and replace(state.ending, passed_on=True))


def _new_leader(state: DispatcherState, _record: Record, _body: everyone.LeaderElected) -> DispatcherState:
    # A cluster that has ended starts again with its next leader; so does one whose end was cut short.
    return replace(state, ending=None) if state.ending else state


def _job(state: DispatcherState, record: Record, job_id: str, phase: Phase) -> Job:
    job = state.jobs.get(job_id)
    if job is None or job.phase is not phase:
        now = "unknown" if job is None else job.phase.value
        raise IllegalEvent(record, now, f"job {job_id} is not in phase {phase.value}")
    return job


def _submitted(state: DispatcherState, record: Record, body: dispatcher.SubmitJob) -> DispatcherState:
    fault = _fault(state, body)
    requester = record.header.sender
    if fault is not None:
        refusal = Refusal(requester, body.job_id, fault)
        return replace(state, refusals=state.refusals.set(record.offset, refusal))
    job = Job(
        job_id=body.job_id,
        requester=requester,
        phase=Phase.BUILDING if body.job_graph is None else Phase.ADMITTED,
        cause=record.offset,
        name=body.job_graph.name if body.job_graph else "",
        graph=body.job_graph,
        entry_point=body.entry_point,
        parallelism=body.parallelism,
    )
    return _put(state, job)


def _fault(state: DispatcherState, body: dispatcher.SubmitJob) -> str | None:
    if not is_id(body.job_id):
        return f"job id {body.job_id[:80]!r} is not 1 to 64 letters, digits, '-' or '_': choose another"
    if body.job_id in state.jobs:
        status = state.jobs[body.job_id].status.value
        return f"job {body.job_id} was submitted before and is {status}: choose another job id"
    if state.ending is not None:
        return f"the cluster is shutting down ({state.ending.reason}): submit again when it has been started"
    if (body.job_graph is None) == (body.entry_point is None):
        return "exactly one of job_graph and entry_point must be given"
    if body.parallelism is not None and body.parallelism < 1:
        return f"parallelism {body.parallelism} is impossible: give 1 or more"
    if body.job_graph is not None:
        return _some_of(validate(body.job_graph)) or None
    if body.entry_point is not None and (faults := job_options.faults(body.entry_point.configuration)):
        return f"configuration: {'; '.join(faults)}"
    return None


def _some_of(reasons: list[str]) -> str:
    """As many reasons as people read: a graph may be wrong in more places than an answer can hold."""
    left = len(reasons) - _REASONS
    return "; ".join(reasons[:_REASONS]) + (f"; and {left} more" if left > 0 else "")


def _built(state: DispatcherState, record: Record, body: dispatcher.JobGraphBuilt) -> DispatcherState:
    job, graph = _job(state, record, body.job_id, Phase.BUILDING), body.job_graph
    fault = _some_of(validate(graph))
    if fault:
        return _refused(state, record, job, fault)
    return _put(state, replace(job, phase=Phase.ADMITTED, cause=record.offset, name=graph.name, graph=graph))


def _refused(state: DispatcherState, record: Record, job: Job, reason: str) -> DispatcherState:
    """A job that never was: its id is free again."""
    return replace(
        state,
        jobs=state.jobs.delete(job.job_id),
        owing=state.owing.delete(job.job_id),
        live=state.live.delete(job.job_id),
        refusals=state.refusals.set(record.offset, Refusal(job.requester, job.job_id, reason)),
    )


def _cancel_asked(state: DispatcherState, record: Record, body: dispatcher.CancelJob) -> DispatcherState:
    job_id = body.job_id
    job = state.jobs.get(job_id)
    if job is None or job.phase in (Phase.TERMINATED, Phase.ENDED):
        what = "is unknown" if job is None else f"has ended already: {job.status.value}"
        refusal = Refusal(record.header.sender, job_id, f"job {job_id[:80]} {what}", of_cancel=True)
        return replace(state, refusals=state.refusals.set(record.offset, refusal))
    return _to_cancel(state, job, record.offset)


def _to_cancel(state: DispatcherState, job: Job, cause: int) -> DispatcherState:
    if job.cancel:
        return state
    if job.phase is Phase.RUNNING:
        return _put(state, replace(job, phase=Phase.CANCEL_REQUESTED, cancel=True, cause=cause))
    return _put(state, replace(job, cancel=True))


def _cancel_said(state: DispatcherState, _record: Record, body: job_master.CancelJob) -> DispatcherState:
    job = state.jobs.get(body.job_id)
    if job is None or job.phase is not Phase.CANCEL_REQUESTED:
        # The job ended between the decision and its place in the log.
        return state
    return _put(state, replace(job, phase=Phase.RUNNING))


def _ending(state: DispatcherState, record: Record, body: dispatcher.ShutDownCluster) -> DispatcherState:
    if state.ending is not None:
        return state
    live = sorted((state.jobs[job_id] for job_id in state.live), key=lambda job: (job.cause, job.job_id))
    for job in live:
        state = _to_cancel(state, job, record.offset)
    return replace(state, ending=Ending(body.reason, record.offset))


def _started(state: DispatcherState, record: Record, body: job_master.StartJob) -> DispatcherState:
    job = _job(state, record, body.job_id, Phase.ACCEPTED)
    phase = Phase.CANCEL_REQUESTED if job.cancel else Phase.RUNNING
    started = replace(
        job, phase=phase, cause=record.offset, graph=None, entry_point=None, status=JobStatus.RUNNING
    )
    return _put(state, started)


def _terminated(
    state: DispatcherState, record: Record, body: dispatcher.JobReachedTerminalState
) -> DispatcherState:
    job = state.jobs.get(body.job_id)
    if job is None or job.phase not in (Phase.RUNNING, Phase.CANCEL_REQUESTED) or body.status not in JOB_ENDS:
        now = "unknown" if job is None else job.phase.value
        raise IllegalEvent(record, now, f"job {body.job_id} can't reach {body.status.value}")
    ended = replace(
        job, phase=Phase.TERMINATED, cause=record.offset, status=body.status, reason=body.reason, cancel=True
    )
    return _put(state, ended)


def _ended(state: DispatcherState, record: Record, body: client.JobFinished) -> DispatcherState:
    return _put(state, replace(_job(state, record, body.job_id, Phase.TERMINATED), phase=Phase.ENDED))


def _answered(
    state: DispatcherState, record: Record, _body: client.JobRejected | client.CancelJobRejected
) -> DispatcherState:
    cause = record.header.cause
    if cause is None or cause not in state.refusals:
        return state
    return replace(state, refusals=state.refusals.delete(cause))


def _refusal(offset: int, refusal: Refusal) -> Owed:
    answer = client.CancelJobRejected if refusal.of_cancel else client.JobRejected
    return Owed(refusal.recipient, answer(job_id=refusal.job_id, reason=refusal.reason), offset)


def _owed_for(job: Job) -> list[Owed]:
    job_master_address = address(JOB_MASTER, job.job_id)
    match job.phase:
        case Phase.ADMITTED | Phase.ACCEPTED:
            accepted = Owed(job.requester, client.JobAccepted(job_id=job.job_id, name=job.name), job.cause)
            if job.graph is None:
                raise AssertionError(f"job {job.job_id} is {job.phase} without a graph")
            start = Owed(
                job_master_address, job_master.StartJob(job_id=job.job_id, job_graph=job.graph), job.cause
            )
            return [accepted, start] if job.phase is Phase.ADMITTED else [start]
        case Phase.CANCEL_REQUESTED:
            return [Owed(job_master_address, job_master.CancelJob(job_id=job.job_id), job.cause)]
        case Phase.TERMINATED:
            body = client.JobFinished(job_id=job.job_id, status=job.status, reason=job.reason)
            return [Owed(job.requester, body, job.cause)]
        case Phase.BUILDING | Phase.RUNNING | Phase.ENDED:
            return []


def _owed_for_ending(state: DispatcherState) -> list[Owed]:
    ending = state.ending
    if ending is None or ending.passed_on or state.live:
        return []
    return [Owed(RESOURCE_MANAGER, resource_manager.ShutDownCluster(reason=ending.reason), ending.cause)]


_STEPS: Steps[DispatcherState] = Steps(
    {
        dispatcher.SubmitJob: _submitted,
        dispatcher.CancelJob: _cancel_asked,
        dispatcher.ShutDownCluster: _ending,
        dispatcher.SubmissionRefused: _submission_refused,
        dispatcher.JobGraphBuilt: _built,
        dispatcher.JobGraphFailed: _graph_failed,
        dispatcher.JobReachedTerminalState: _terminated,
        client.JobAccepted: _accepted,
        client.JobRejected: _answered,
        client.CancelJobRejected: _answered,
        client.JobFinished: _ended,
        job_master.StartJob: _started,
        job_master.CancelJob: _cancel_said,
        resource_manager.ShutDownCluster: _ending_passed_on,
        everyone.LeaderElected: _new_leader,
        everyone.ClusterTerminated: unchanged,
    }
)
