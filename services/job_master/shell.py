"""The JobMaster's shell: creates and deletes the topics that the job's tasks need, measures its tasks, and performs
checkpoint instructions.

A failed creation is reported and fails the job. If Kafka is unreachable the shell retries as long as the job needs its
channels. A deletion is retried until it succeeds or the shell is closed, because a cluster cannot end before it. A
deletion that Kafka does not allow is left to JobTopicCleaner. The next leader's shell continues the work of a closed
shell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from confluent_kafka.admin import AdminClient

from ...infra import threads
from ...infra.logging_setup import logger
from ...pipelines.graph.physical_plan import temporary_topics
from ...schemas import job_master
from ..blobs import job_graph_blob
from ..blobs.errors import BlobUnavailable
from ..blobs.tiered_store import TieredBlobStore
from ..core.instruction_tracker import InstructionTracker
from ..core.role import Emit, Instruction, OutgoingEvent, Time
from ..log.topic_options import DEFAULT_OPTIONS, TopicOptions
from ..log.topics import (
    KafkaUnreachable,
    TopicRefused,
    add_partitions,
    create_topics,
    delete_topics,
)
from .autoscaler.task_meter import TaskMeter
from .checkpoints.shell import CheckpointShell
from .instructions import (
    CreateChannels,
    DeleteChannels,
    DiscardCheckpoint,
    FindCheckpoint,
    MeasureTasks,
    RemoveCheckpoints,
    WriteMetadata,
)
from .job_topics import new_job_topics
from .state import JobMasterState, TerminatedJob

_log = logger(__name__)
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0


class JobMasterShell:
    """The shell of all JobMasters of a process.

    `follow` receives each state of a job on the host's thread: heartbeats read from it. `on_retire` receives jobs that
    are no longer led here. `is_current`: see CheckpointShell. `output_retention`: for how long Kafka keeps the output
    of a job, in microseconds, also while the job runs. `blobs`: where graphs are stored; None: nowhere.
    `topic_options`: the operator's settings of new topics. `meter`: measures tasks; None: they are not measured.
    """

    def __init__(
        self,
        say: Emit,
        admin: AdminClient,
        cluster: str,
        output_retention: Time,
        follow: Callable[[str, JobMasterState], None] = lambda _address, _state: None,
        on_retire: Callable[[str], None] = lambda _address: None,
        is_current: Callable[[], bool] = lambda: True,
        blobs: TieredBlobStore | None = None,
        topic_options: TopicOptions = DEFAULT_OPTIONS,
        meter: TaskMeter | None = None,
    ) -> None:
        self._say = say
        self._follow = follow
        self._blobs = blobs
        self._on_retire = on_retire
        self._meter = meter
        self._over: dict[str, threading.Event] = {}
        """By address: what stops its work when the job is no longer led here."""
        self._channel_creations: dict[str, str] = {}
        """Address -> the key of its instruction to create channels."""
        self._admin = admin
        self._cluster = cluster
        self._topic_options = topic_options
        self._output_retention = output_retention
        self._started = InstructionTracker()
        self._checkpoints = CheckpointShell(say, is_current)
        self._closed = threading.Event()
        self._creators = threads.Pool(4, "create channels")
        # Deletions that cannot succeed must not delay new jobs.
        self._deleters = threads.Pool(4, "delete channels")

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._checkpoints.still_demanded(role_address, instructions)
        if self._meter is not None:
            self._meter.follow(role_address, instructions)
        creation = next(
            (instruction for instruction in instructions if isinstance(instruction, CreateChannels)), None
        )
        if creation is not None:
            self._channel_creations[role_address] = creation.key
        else:
            self._channel_creations.pop(role_address, None)
        for instruction in self._started.take_new(role_address, instructions):
            over = self._over.setdefault(role_address, threading.Event())
            match instruction:
                case CreateChannels():
                    self._creators.submit(self._create, role_address, instruction, over)
                case DeleteChannels():
                    self._deleters.submit(self._delete, role_address, instruction, over)
                case WriteMetadata() | FindCheckpoint() | DiscardCheckpoint() | RemoveCheckpoints():
                    self._checkpoints.perform(role_address, instruction, over)
                case MeasureTasks():
                    # The meter follows all instructions.
                    pass
                case _:
                    raise TypeError(f"the JobMaster's shell does not know {instruction!r}")
        if isinstance(state, JobMasterState):
            self._follow(role_address, state)
            if isinstance(state, TerminatedJob) and not instructions:
                self._end(role_address)

    def retire(self, role_address: str) -> None:
        self._end(role_address)
        self._started.reset(role_address)
        self._channel_creations.pop(role_address, None)
        self._checkpoints.still_demanded(role_address, ())
        if self._meter is not None:
            self._meter.follow(role_address, ())
        self._on_retire(role_address)

    def close(self) -> None:
        self._closed.set()
        if self._meter is not None:
            self._meter.close()
        self._checkpoints.close()
        for over in tuple(self._over.values()):
            over.set()
        self._creators.shutdown()
        self._deleters.shutdown()

    def _end(self, role_address: str) -> None:
        over = self._over.pop(role_address, None)
        if over is not None:
            over.set()

    def _emit(self, over: threading.Event, role_address: str, owed: OutgoingEvent) -> None:
        if not over.is_set() or self._closed.is_set():
            self._say(role_address, owed)

    def _create(self, role_address: str, instruction: CreateChannels, over: threading.Event) -> None:
        job_id = instruction.job_id
        body: job_master.ChannelsCreated | job_master.ChannelsFailed | None = None
        while body is None:
            try:
                if instruction.graph_blob is not None and self._blobs is not None:
                    self._blobs.put(job_graph_blob.encode(job_id, instruction.job_graph), job_id)
                wanted = new_job_topics(
                    self._cluster,
                    job_id,
                    instruction.job_graph,
                    self._topic_options,
                    self._output_retention,
                )
                created = create_topics(self._admin, wanted)
                # One of them may have been deleted and created again with fewer partitions.
                there = {topic.topic: topic.num_partitions for topic in wanted if topic.topic not in created}
                add_partitions(self._admin, there)
                body = job_master.ChannelsCreated(job_id=job_id)
            except (KafkaUnreachable, BlobUnavailable) as error:
                _log.warning("cannot create channels; retries", job=job_id, error=str(error))
                over.wait(_FIRST_PAUSE_S)
                if over.is_set() or self._channel_creations.get(role_address) != instruction.key:
                    # They are no longer needed, or another leader deletes them.
                    return
            except Exception as error:
                # Nobody waits for the result of this thread: without a report, the job would wait for ever.
                body = job_master.ChannelsFailed(job_id=job_id, reason=str(error) or repr(error))
        self._emit(over, role_address, OutgoingEvent(role_address, body, instruction.cause))

    def _delete(self, role_address: str, instruction: DeleteChannels, over: threading.Event) -> None:
        pause = _FIRST_PAUSE_S
        while not over.is_set():
            try:
                wanted = temporary_topics(self._cluster, instruction.job_id, instruction.job_graph)
                delete_topics(self._admin, list(wanted))
            except TopicRefused as error:
                # The job has ended all the same. JobTopicCleaner deletes them once that is allowed.
                _log.warning("may not delete channels; they stay", job=instruction.job_id, error=str(error))
            except Exception as error:
                _log.warning(
                    "cannot delete channels; retries",
                    job=instruction.job_id,
                    seconds=pause,
                    error=str(error) or repr(error),
                )
                over.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                continue
            body = job_master.ChannelsDeleted(job_id=instruction.job_id)
            self._emit(over, role_address, OutgoingEvent(role_address, body, instruction.cause))
            return
