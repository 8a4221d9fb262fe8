"""The ended jobs that the cluster remembers (Flink's ExecutionGraphInfoStore).

A job expires some time after its end, or when there are too many ended jobs. JobsExpired is the decision; the shell
then deletes the topics that these jobs still have, and reports JobsForgotten. With that event all replicas drop the
states of the jobs and of their JobMasters. From then on the id is free: the log and its archive keep the history.

Jobs expire in batches, so that a busy cluster decides seldom: by time a hundredth of the time late, by number a
sixteenth at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ...schemas import dispatcher
from ...schemas.body import Body
from ...schemas.event import Record
from ..core.role import DISPATCHER, Instruction, OutgoingEvent, Step, Time
from .state import DispatcherState
from .turn import Turn

MAX_BATCH = 1_000
"""Jobs in one JobsExpired."""
_SLACK = 100
_SHARE = 16


class DeleteJobTopics(Instruction, frozen=True):
    """Delete all topics of these ended jobs. Answered by JobsForgotten."""

    job_ids: tuple[str, ...]
    cause: int

    @property
    def key(self) -> str:
        return f"delete topics of jobs/{self.cause}"


def send_due(state: DispatcherState, turn: Turn, now: Time) -> None:
    """Adds JobsExpired if jobs have expired. One batch at a time: the next one follows its JobsForgotten."""
    due = _find_due(state, now)
    if due:
        last = state.jobs[due[-1]].cause
        expired = dispatcher.JobsExpired(job_ids=tuple(due))
        turn.add_event(last, "", OutgoingEvent(DISPATCHER, expired, last))


def deadline(state: DispatcherState) -> Time | None:
    """Returns the time at which the next job expires without any event."""
    if not state.ended or state.expired:
        return None
    return _ended_at(state, state.ended_head) + _longest(state)


def instructions(state: DispatcherState) -> list[Instruction]:
    """Returns a DeleteJobTopics for each batch of expired jobs."""
    return [DeleteJobTopics(job_ids, offset) for offset, job_ids in sorted(state.expired.items())]


def _find_due(state: DispatcherState, now: Time) -> list[str]:
    options, head = state.options, state.ended_head
    if not state.ended or state.expired:
        return []
    count = 0
    if _ended_at(state, head) + _longest(state) <= now:
        limit = min(len(state.ended), MAX_BATCH)
        while count < limit and _ended_at(state, head + count) <= now - options.expiration_time:
            count += 1
    over = len(state.ended) - options.max_ended
    if over > count:
        count = min(over + options.max_ended // _SHARE, MAX_BATCH)
    return [state.ended[place] for place in range(head, head + count)]


def _ended_at(state: DispatcherState, place: int) -> Time:
    return state.jobs[state.ended[place]].ended_at


def _longest(state: DispatcherState) -> Time:
    return state.options.expiration_time + state.options.expiration_time // _SLACK


def on_jobs_expired(state: DispatcherState, record: Record, body: dispatcher.JobsExpired) -> DispatcherState:
    ended, head = state.ended, state.ended_head
    known = []
    for job_id in body.job_ids:
        if ended.get(head) == job_id:
            known.append(job_id)
            ended, head = ended.delete(head), head + 1
    if not known:
        return state
    expired = state.expired.set(record.offset, tuple(known))
    return replace(state, ended=ended, ended_head=head, expired=expired)


def on_jobs_forgotten(
    state: DispatcherState, record: Record, body: dispatcher.JobsForgotten
) -> DispatcherState:
    cause = record.header.cause
    if cause is None or cause not in state.expired:
        return state
    state = replace(state, expired=state.expired.delete(cause))
    for job_id in body.job_ids:
        state = state.without(job_id)
    return state


STEPS: Mapping[type[Body], Step[DispatcherState]] = {
    dispatcher.JobsExpired: on_jobs_expired,
    dispatcher.JobsForgotten: on_jobs_forgotten,
}
