"""The Dispatcher's `evolve` and `decide` (Flink's Dispatcher)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from immutables import Map
from msgspec.structs import replace

from ...schemas import client, dispatcher, everyone
from ...schemas.event import Record
from ...schemas.types import EntryPoint
from ..core.role import DISPATCHER, Instruction, OutgoingEvent, Steps, Time, unchanged
from . import checkpoints, jobs, shutdown
from .state import DispatcherState, FeatureLevelWanted, Rejection


class BuildJobGraph(Instruction, frozen=True):
    """Run the program that the entry point names until it has built its graph."""

    job_id: str
    entry_point: EntryPoint
    parallelism: int | None
    cause: int
    savepoint_path: str | None = None
    """What the job begins with; None: what its configuration says."""
    configuration: Mapping[str, str] = {}
    """The cluster's, as ConfigurationChanged has it: what jobs go by that say nothing themselves."""

    @property
    def key(self) -> str:
        return f"build/{self.job_id}/{self.cause}"


class RaiseFeatureLevel(Instruction, frozen=True):
    """Raise the cluster's feature level, if the leading process knows the level."""

    level: int
    cause: int
    requester: str = ""

    @property
    def key(self) -> str:
        return f"raise-feature-level/{self.level}/{self.cause}"


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
        return _STEPS.apply(state, record)

    def decide(self, state: DispatcherState, now: Time) -> list[OutgoingEvent]:
        owed = jobs.rejection_events(state) + checkpoints.outgoing_events(state)
        for job_id, offset in state.owing.items():
            # One event may concern many jobs, as the end of the cluster does.
            owed += [((offset, job_id), each) for each in jobs.outgoing_events(state, state.jobs[job_id])]
        owed.sort(key=lambda pair: pair[0])
        return [each for _, each in owed] + shutdown.outgoing_events(state)

    def deadline(self, state: DispatcherState) -> Time | None:
        return None

    def instructions(self, state: DispatcherState) -> Sequence[Instruction]:
        building = [state.jobs[job_id] for job_id in islice(state.building, jobs.MAX_INSTRUCTED_BUILDS)]
        builds = [
            BuildJobGraph(
                job.job_id,
                job.entry_point,
                job.parallelism,
                job.cause,
                job.savepoint_path,
                state.configuration or {},
            )
            for job in building
            if job.entry_point is not None
        ]
        wanted = state.raising
        raises = [] if wanted is None else [RaiseFeatureLevel(wanted.level, wanted.cause, wanted.requester)]
        return [*builds, *checkpoints.instructions(state), *raises]

    def is_quiescent(self, state: DispatcherState) -> bool:
        return False


def _admitted(state: DispatcherState, partition: int, offset: int) -> DispatcherState:
    # A refusal may come into the log behind what was admitted after it.
    position = max(offset + 1, state.positions.get(partition, 0))
    return replace(state, positions=state.positions.set(partition, position))


def on_submission_refused(
    state: DispatcherState, record: Record, body: dispatcher.SubmissionRefused
) -> DispatcherState:
    state = _admitted(state, body.source.partition, body.source.offset)
    if not (body.client and body.job_id):
        return state
    refusal = Rejection(body.client, body.job_id, body.reason)
    return replace(state, refusals=state.refusals.set(record.offset, refusal))


def on_submissions_topic_changed(
    state: DispatcherState, _record: Record, body: dispatcher.SubmissionsTopicChanged
) -> DispatcherState:
    return replace(state, submissions_topic_id=body.topic_id, positions=Map(dict(enumerate(body.positions))))


def on_configuration_changed(
    state: DispatcherState, _record: Record, body: everyone.ConfigurationChanged
) -> DispatcherState:
    return replace(state, configuration=body.configuration)


def on_raise_feature_level(
    state: DispatcherState, record: Record, body: dispatcher.RaiseFeatureLevel
) -> DispatcherState:
    # A later request takes the place of an earlier one.
    return replace(state, raising=FeatureLevelWanted(body.level, record.offset, record.header.sender))


def on_feature_level_raised(
    state: DispatcherState, _record: Record, body: everyone.FeatureLevelRaised
) -> DispatcherState:
    if state.raising is None or body.level < state.raising.level:
        return state
    return replace(state, raising=None)


def on_feature_level_rejected(
    state: DispatcherState, record: Record, _body: client.FeatureLevelRejected
) -> DispatcherState:
    if state.raising is None or state.raising.cause != record.header.cause:
        return state
    return replace(state, raising=None)


_STEPS: Steps[DispatcherState] = Steps(
    {
        **jobs.STEPS,
        **checkpoints.STEPS,
        **shutdown.STEPS,
        dispatcher.SubmissionRefused: on_submission_refused,
        dispatcher.SubmissionsTopicChanged: on_submissions_topic_changed,
        dispatcher.RaiseFeatureLevel: on_raise_feature_level,
        client.FeatureLevelRejected: on_feature_level_rejected,
        everyone.ConfigurationChanged: on_configuration_changed,
        everyone.FeatureLevelRaised: on_feature_level_raised,
        everyone.TaskExecutorLost: unchanged,
    }
)
