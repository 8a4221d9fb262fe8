"""The checks of an upgrade before anything is touched: state, slots and topics. One line for each problem.

State is checked against the last checkpoint of the job, without its records in flight: the savepoint that the new
program starts from has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException
from msgspec.structs import replace

from .....infra.storage.errors import CheckpointError
from .....pipelines.checkpoint.compatibility import incompatibilities, with_key_groups_of
from .....pipelines.checkpoint.metadata import CheckpointMetadata, read_metadata
from .....pipelines.graph.execution_graph import required_slots
from .....pipelines.graph.operators import OperatorKind
from .....schemas.types import JobGraph
from ....blobs.job_blobs import blob_keys
from ....configuration import Configuration
from ....configuration.options.blob import BLOB_CLEANUP_INTERVAL
from ....configuration.options.resource_manager import ResourceManagerMode
from ....core.role import RESOURCE_MANAGER
from ....dispatcher.submission_validation import find_graph_error
from ....history import HistoryProjection
from ....history.cluster_view import JobView, workers
from ....log import LogUnavailable
from ....log.clients import consumer_configuration
from ....resource_manager.state import ResourceManagerState
from .steps import Limits

_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Findings:
    """What the checks have found. `graph`: the new program with the key groups of the checkpoint."""

    graph: JobGraph
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What could not be checked, and why."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that a program is checked against; `obstacle` is why it can't be read here."""

    metadata: CheckpointMetadata | None = None
    obstacle: str = ""


def check(
    configuration: Configuration,
    fold: HistoryProjection,
    job: JobView,
    old: JobGraph,
    new: JobGraph,
    limits: Limits,
    *,
    allow_non_restored_state: bool,
) -> Findings:
    """Checks the new program of a job that runs. Raises LogUnavailable."""
    found = read_last_checkpoint(job)
    if found.metadata is not None:
        new = with_key_groups_of(found.metadata, new)
    problems = [
        *_state_problems(found, new, allow_non_restored_state=allow_non_restored_state),
        *_graph_problems(new, job.job_id),
        *slot_problems(fold, job, new),
        *_topic_problems(configuration, new),
        *_blob_problems(configuration, old, limits),
    ]
    notes = [found.obstacle] if found.obstacle else []
    return Findings(new, tuple(problems), tuple(notes))


def read_last_checkpoint(job: JobView) -> Checkpoint:
    """Reads the metadata of the last complete checkpoint or savepoint of a job."""
    last = job.checkpoints.last
    if last is None or last.discarded:
        return Checkpoint(obstacle=f"job {job.job_id} has no checkpoint yet, so its state is not checked")
    try:
        return Checkpoint(read_metadata(last.uri))
    except CheckpointError as error:
        return Checkpoint(
            obstacle=f"the last checkpoint can't be read here, so its state is not checked: {error}"
        )


def misfits(metadata: CheckpointMetadata, graph: JobGraph, *, allow_non_restored_state: bool) -> list[str]:
    """Returns why the state in a checkpoint does not fit the program."""
    subtasks = tuple(replace(each, state=replace(each.state, in_flight=())) for each in metadata.subtasks)
    return incompatibilities(
        replace(metadata, subtasks=subtasks), graph, allow_non_restored_state=allow_non_restored_state
    )


def slot_problems(fold: HistoryProjection, job: JobView, graph: JobGraph) -> Iterator[str]:
    """Yields a problem if the program needs more slots than there are when the old job has freed its own."""
    state = fold.replica.states.get(RESOURCE_MANAGER)
    if isinstance(state, ResourceManagerState) and state.options.mode is ResourceManagerMode.ACTIVE:
        return  # It starts the TaskExecutors that a job needs.
    wanted = required_slots(graph)
    usable = [worker for worker in workers(fold.replica) if worker.quarantine is None]
    free = sum(worker.free_slots for worker in usable)
    own = job.required_slots - job.missing_slots
    if wanted > free + own:
        yield (
            f"the program needs {wanted} slots, and there are {free + own}: {own} of job {job.job_id} and {free} free"
            " ones: start TaskExecutors, or lower the parallelism"
        )


def _state_problems(found: Checkpoint, graph: JobGraph, *, allow_non_restored_state: bool) -> Iterator[str]:
    if found.metadata is not None:
        yield from misfits(found.metadata, graph, allow_non_restored_state=allow_non_restored_state)


def _graph_problems(graph: JobGraph, job_id: str) -> Iterator[str]:
    if (error := find_graph_error(graph, job_id)) is not None:
        yield error


def _topic_problems(configuration: Configuration, graph: JobGraph) -> Iterator[str]:
    used = list(topics_of(graph))
    if not used:
        return
    consumer = Consumer(consumer_configuration(configuration.kafka))
    try:
        known = consumer.list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        raise LogUnavailable(f"the topics can't be listed: {error.args[0].str()}") from error
    finally:
        consumer.close()
    for topic, verb, operator in used:
        if topic not in known:
            yield f"operator {operator!r} {verb} the topic {topic!r}, which does not exist: create it"


def topics_of(graph: JobGraph) -> Iterator[tuple[str, str, str]]:
    """Yields topic, verb and operator of the sources and sinks in the cluster's own Kafka."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.kind not in (OperatorKind.KAFKA_SOURCE, OperatorKind.KAFKA_SINK):
                continue
            parameters = json.loads(operator.parameters)
            if parameters.get("connection") is not None:
                continue
            if operator.kind == OperatorKind.KAFKA_SINK:
                names, verb = [parameters["topic"]], "writes"
            else:
                names, verb = [] if parameters.get("topic_pattern") else parameters["topics"], "reads"
            yield from ((name, verb, operator.name) for name in names if name is not None)


def _blob_problems(configuration: Configuration, old: JobGraph, limits: Limits) -> Iterator[str]:
    kept = configuration.get(BLOB_CLEANUP_INTERVAL)
    wait = limits.timeout + limits.stabilization
    if limits.rolls_back and blob_keys(old) and wait >= kept:
        yield (
            f"--timeout and --stabilization are {wait / 1e6:g} s together, and blobs of the old program are kept for"
            f" {kept / 1e6:g} s ({BLOB_CLEANUP_INTERVAL.key}): shorten them, or give --no-rollback"
        )
