"""The Dispatcher's `evolve` and `decide` (Flink's Dispatcher)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from immutables import Map
from msgspec.structs import replace

from ...infra.config.option_types import LOCATION
from ...schemas import client, dispatcher, everyone
from ...schemas.event import Record
from ...schemas.types import EntryPoint
from ..configuration.role_options import DispatcherOptions
from ..core.role import DISPATCHER, Instruction, OutgoingEvent, Steps, Time, unchanged
from . import checkpoints, job_control, job_store, jobs, requests, rescaling, shutdown
from .state import DispatcherState, FeatureLevelWanted, RefusedSubmission
from .submissions_topic import AdmittedPositions
from .turn import Turn


class BuildJobGraph(Instruction, frozen=True):
    """Run the program that the entry point names until it has built its graph."""

    job_id: str
    entry_point: EntryPoint
    parallelism: int | None
    cause: int
    savepoint_path: str | None = None
    """The checkpoint that the job starts from; None: that of its configuration."""
    configuration: Mapping[str, str] = {}
    """The cluster's configuration as in ConfigurationChanged: the defaults of jobs."""

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
    """The role; a cluster has one state of it."""

    kind = DISPATCHER

    def initial(self, role_address: str) -> DispatcherState:
        return DispatcherState()

    def evolve(self, state: DispatcherState, record: Record) -> DispatcherState:
        header = record.header
        if header.origin is not None:
            tenant, partition, offset = header.origin.tenant, header.origin.partition, header.origin.offset
            admitted = state.admitted.get(tenant)
            if admitted is not None and offset < admitted.positions.get(partition, 0):
                # Two leaders may admit the same submission around a change of leadership; the first one counts.
                return state
            state = state.with_admitted(tenant, partition, offset)
        return _STEPS.apply(state, record)

    def decide(self, state: DispatcherState, now: Time) -> list[OutgoingEvent]:
        turn = Turn()
        requests.take_verdicts(state, turn)
        jobs.send_owed(state, turn)
        checkpoints.send_owed(state, turn)
        shutdown.send_owed(state, turn)
        job_store.send_due(state, turn, now)
        return turn.events()

    def deadline(self, state: DispatcherState) -> Time | None:
        return job_store.deadline(state)

    def instructions(self, state: DispatcherState) -> Sequence[Instruction]:
        building = [state.jobs[job_id] for job_id in state.building.chosen]
        builds = [
            BuildJobGraph(
                job.job_id,
                job.entry_point,
                job.parallelism,
                job.submission,
                None if job.savepoint_path is None else LOCATION.read(job.savepoint_path),
                state.configuration or {},
            )
            for job in building
            if job.entry_point is not None
        ]
        wanted = state.raising
        raises = [] if wanted is None else [RaiseFeatureLevel(wanted.level, wanted.cause, wanted.requester)]
        return [*builds, *checkpoints.instructions(state), *job_store.instructions(state), *raises]

    def is_quiescent(self, state: DispatcherState) -> bool:
        return False

    def is_over(self, state: DispatcherState) -> bool:
        return False


def on_submission_refused(
    state: DispatcherState, record: Record, body: dispatcher.SubmissionRefused
) -> DispatcherState:
    state = state.with_admitted(body.source.tenant, body.source.partition, body.source.offset)
    if not (body.client and body.job_id):
        return state
    return state.with_request(
        record.offset, RefusedSubmission(body.client, body.job_id, body.reason, body.source.tenant)
    )


def on_submissions_topic_changed(
    state: DispatcherState, _record: Record, body: dispatcher.SubmissionsTopicChanged
) -> DispatcherState:
    positions = AdmittedPositions(body.topic_id, Map(dict(enumerate(body.positions))))
    return replace(state, admitted=state.admitted.set(body.tenant, positions))


def on_configuration_changed(
    state: DispatcherState, _record: Record, body: everyone.ConfigurationChanged
) -> DispatcherState:
    options = DispatcherOptions.from_configuration(body.configuration)
    return replace(state, configuration=body.configuration, options=options)


def on_raise_feature_level(
    state: DispatcherState, record: Record, body: dispatcher.RaiseFeatureLevel
) -> DispatcherState:
    # A later request replaces an earlier one.
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
        **rescaling.STEPS,
        **shutdown.STEPS,
        **job_store.STEPS,
        **job_control.STEPS,
        dispatcher.SubmissionRefused: on_submission_refused,
        dispatcher.SubmissionsTopicChanged: on_submissions_topic_changed,
        dispatcher.RaiseFeatureLevel: on_raise_feature_level,
        client.FeatureLevelRejected: on_feature_level_rejected,
        everyone.ConfigurationChanged: on_configuration_changed,
        everyone.FeatureLevelRaised: on_feature_level_raised,
        everyone.TaskExecutorLost: unchanged,
    }
)
