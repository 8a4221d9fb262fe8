"""The JobMaster's shell: creates and deletes the topics that the job's tasks need, and performs checkpoint
instructions.

A failed creation is reported and fails the job. If Kafka is unreachable the shell retries as long as the job needs its
channels. A deletion is retried until it succeeds or the shell is closed, because a cluster can't end before it. The
next leader's shell continues what a closed shell left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ...infra import threads
from ...infra.logging_setup import logger
from ...pipelines.graph.physical_plan import output_topic, temporary_topics, topics
from ...schemas import job_master
from ..core.instruction_tracker import InstructionTracker
from ..core.role import Emit, Instruction, OutgoingEvent, Time
from ..log.topics import (
    KEEP_FOR_EVER,
    KafkaUnreachable,
    add_partitions,
    create_topics,
    delete_topics,
)
from .checkpoints.shell import CheckpointShell
from .instructions import (
    CreateChannels,
    DeleteChannels,
    DiscardCheckpoint,
    FindCheckpoint,
    RemoveCheckpoints,
    WriteMetadata,
)
from .state import JobMasterState

_log = logger(__name__)
_CONFIG = KEEP_FOR_EVER | {"segment.bytes": str(64 << 20)}
"""Tasks delete what nobody reads any more (commit_followup.py), and Kafka gives back whole segments alone."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0


class JobMasterShell:
    """The shell of all JobMasters of a process.

    `follow` receives each state of a job on the host's thread: heartbeats read from it. `on_retire` receives jobs that
    are not led here any more. `is_current`: see CheckpointShell. `output_retention`: for how long Kafka keeps what a
    job prints, in microseconds, also while the job runs.
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
    ) -> None:
        self._say = say
        self._follow = follow
        self._on_retire = on_retire
        self._over: dict[str, threading.Event] = {}
        """By the address that demands something: what ends that when the job is not led here any more."""
        self._channels_of: dict[str, str] = {}
        """Address -> the key of the creation that it demands."""
        self._admin = admin
        self._cluster = cluster
        self._output_config = _CONFIG | {"retention.ms": str(output_retention // 1000)}
        self._begun = InstructionTracker()
        self._checkpoints = CheckpointShell(say, is_current)
        self._closed = threading.Event()
        self._creators = threads.Pool(4, "create channels")
        # Deletions that can't succeed must not keep new jobs waiting.
        self._deleters = threads.Pool(4, "delete channels")

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        self._checkpoints.still_demanded(role_address, instructions)
        creation = next((each for each in instructions if isinstance(each, CreateChannels)), None)
        if creation is not None:
            self._channels_of[role_address] = creation.key
        else:
            self._channels_of.pop(role_address, None)
        for instruction in self._begun.take_new(role_address, instructions):
            over = self._over.setdefault(role_address, threading.Event())
            match instruction:
                case CreateChannels():
                    self._creators.submit(self._create, role_address, instruction, over)
                case DeleteChannels():
                    self._deleters.submit(self._delete, role_address, instruction, over)
                case WriteMetadata() | FindCheckpoint() | DiscardCheckpoint() | RemoveCheckpoints():
                    self._checkpoints.perform(role_address, instruction, over)
                case _:
                    raise TypeError(f"the JobMaster's shell does not know {instruction!r}")
        if isinstance(state, JobMasterState):
            self._follow(role_address, state)
            if state.terminated is not None and not instructions:
                self._end(role_address)

    def retire(self, role_address: str) -> None:
        self._end(role_address)
        self._begun.reset(role_address)
        self._channels_of.pop(role_address, None)
        self._checkpoints.still_demanded(role_address, ())
        self._on_retire(role_address)

    def close(self) -> None:
        self._closed.set()
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
                wanted = topics(self._cluster, job_id, instruction.job_graph)
                printed = output_topic(self._cluster, job_id)
                created = create_topics(
                    self._admin,
                    [
                        NewTopic(name, count, -1, config=self._output_config if name == printed else _CONFIG)
                        for name, count in wanted.items()
                    ],
                )
                # Somebody may have deleted one of them and made it anew, with fewer.
                there = {name: count for name, count in wanted.items() if name not in created}
                add_partitions(self._admin, there)
                body = job_master.ChannelsCreated(job_id=job_id)
            except KafkaUnreachable as error:
                _log.warning("can't create channels; tries again", job=job_id, error=str(error))
                over.wait(_FIRST_PAUSE_S)
                if over.is_set() or self._channels_of.get(role_address) != instruction.key:
                    # Nobody wants them any more, or another leader sees to it.
                    return
            except Exception as error:
                # Nobody asks for the outcome of this thread: what is not said here keeps the job waiting for ever.
                body = job_master.ChannelsFailed(job_id=job_id, reason=str(error) or repr(error))
        self._emit(over, role_address, OutgoingEvent(role_address, body, instruction.cause))

    def _delete(self, role_address: str, instruction: DeleteChannels, over: threading.Event) -> None:
        pause = _FIRST_PAUSE_S
        while not over.is_set():
            try:
                wanted = temporary_topics(self._cluster, instruction.job_id, instruction.job_graph)
                delete_topics(self._admin, list(wanted))
            except Exception as error:
                _log.warning(
                    "can't delete channels; tries again",
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
