"""The Dispatcher's shell: reports the configuration, admits submissions, builds job graphs from programs, and deletes
savepoints.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue

from ...infra import threads
from ...infra.logging_setup import logger
from ...infra.version import __version__
from ...pipelines.checkpoint.compatibility import with_key_groups_at
from ...pipelines.graph.build_server import BuildServer
from ...pipelines.graph.errors import ProgramError
from ...pipelines.graph.job_options import STATE_RECOVERY_PATH
from ...pipelines.graph.program import build
from ...schemas import client, dispatcher, everyone
from ...schemas.body import Body
from ...schemas.event import EVERYONE
from ...schemas.types import JobGraph
from ..blobs.errors import BlobError
from ..blobs.job_blobs import file_keys, parse
from ..blobs.tiered_store import TieredBlobStore
from ..configuration.role_options import job_configuration
from ..core.feature_level import FEATURE_LEVEL
from ..core.instruction_tracker import InstructionTracker
from ..core.role import DISPATCHER, Emit, Instruction, OutgoingEvent
from ..log.topics import LARGEST_SUBMISSION
from .admission import SubmissionsReader
from .build_queue import PARALLEL_BUILDS
from .checkpoints import DisposeSavepoint
from .inline_limit import GraphTooLarge, InlineLimit
from .job_store import DeleteJobTopics
from .role import BuildJobGraph, RaiseFeatureLevel
from .savepoints import DisposalResult, SavepointDisposer, dispose_savepoint
from .state import DispatcherState

_log = logger(__name__)
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
JobDataDeleter = Callable[[Sequence[str], threading.Event], None]
"""Deletes all topics and blobs of ended jobs, and waits until their JobMasters have nothing left to do; returns early
if the event is set."""


class DispatcherShell:
    """The shell of one term. It runs programs in separate processes: user code never enters the jobmanager."""

    def __init__(
        self,
        say: Emit,
        submissions: SubmissionsReader,
        configuration: Mapping[str, str] | None = None,
        blobs: TieredBlobStore | None = None,
        elected: int | None = None,
        dispose: SavepointDisposer = dispose_savepoint,
        inline: InlineLimit | None = None,
        delete_job_data: JobDataDeleter = lambda _job_ids, _closed: None,
        check_level: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        """`configuration`: the cluster's configuration for ConfigurationChanged; None: keep the log's. `blobs`: the
        source of programs' files. `inline`: the limit of the inline parts of a graph. `elected`: the offset of the
        claim that started the term. `dispose` deletes the savepoint of a directory; `delete_job_data` deletes what
        is left of ended jobs in Kafka and as blobs. `check_level` returns why the cluster cannot be raised to a feature
        level; None if it can."""
        self._say = say
        self._configuration = configuration
        self._configured = False
        self._elected = elected
        self._blobs = blobs
        self._inline = inline or InlineLimit(blobs, LARGEST_SUBMISSION, LARGEST_SUBMISSION)
        self._delete = dispose
        self._delete_job_data = delete_job_data
        self._check_level = check_level
        self._submissions = submissions
        self._admitting = False
        self._started = InstructionTracker()
        self._builders = threads.Pool(PARALLEL_BUILDS, "build")
        self._closed = threading.Event()
        self._servers = [BuildServer() for _ in range(PARALLEL_BUILDS)]
        self._builds = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        """The keys of the builds that the state demands now."""
        self._building: dict[str, BuildServer] = {}
        """Key of a build -> its server, while its program runs."""
        self._idle: SimpleQueue[BuildServer] = SimpleQueue()
        for server in self._servers:
            self._idle.put(server)
        # Storage and ZooKeeper may be slow, and must not delay programs.
        self._disposers = threads.Pool(1, "dispose")
        self._topic_deleters = threads.Pool(1, "topics of expired jobs")

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        if isinstance(state, DispatcherState):
            self._admit(state)
        self._cancel_builds(frozenset(each.key for each in instructions if isinstance(each, BuildJobGraph)))
        for instruction in self._started.take_new(role_address, instructions):
            match instruction:
                case BuildJobGraph():
                    self._builders.submit(self._build, instruction)
                case DisposeSavepoint():
                    self._disposers.submit(self._dispose, instruction)
                case DeleteJobTopics():
                    self._topic_deleters.submit(self._forget, instruction)
                case RaiseFeatureLevel(level=level, cause=cause, requester=requester):
                    self._disposers.submit(self._raise_feature_level, level, cause, requester)
                case _:
                    raise TypeError(f"the Dispatcher's shell does not know {instruction!r}")

    def _admit(self, state: DispatcherState) -> None:
        """Starts admission after the configuration has been read back from the log: every job admitted here uses it."""
        admitted = state.admitted
        if self._admitting:
            self._submissions.follow(admitted)
        elif self._configuration in (None, state.configuration):
            self._admitting = True
            self._submissions.start(admitted)
        elif not self._configured:
            self._configured = True
            if state.configuration is None:
                # The log is new: nothing was decided under other rules.
                raised = everyone.FeatureLevelRaised(level=FEATURE_LEVEL, release=__version__)
                self._say(DISPATCHER, OutgoingEvent(EVERYONE, raised, self._elected))
            changed = everyone.ConfigurationChanged(configuration=self._configuration)
            self._say(DISPATCHER, OutgoingEvent(EVERYONE, changed, self._elected))

    def _raise_feature_level(self, level: int, cause: int | None, requester: str) -> None:
        """Answers a request at once: a refused one leaves nothing behind."""
        reason = (
            f"this jobmanager, the leader, knows feature levels up to {FEATURE_LEVEL}: install the release that knows "
            f"level {level} on all masters and TaskExecutors first"
            if level > FEATURE_LEVEL
            else self._check_level(level)
        )
        if reason is None:
            raised = everyone.FeatureLevelRaised(level=level, release=__version__)
            self._say(DISPATCHER, OutgoingEvent(EVERYONE, raised, cause))
        else:
            rejected = client.FeatureLevelRejected(level=level, reason=reason)
            self._say(DISPATCHER, OutgoingEvent(requester, rejected, cause))

    def close(self) -> None:
        self._closed.set()
        self._submissions.close()
        for server in self._servers:
            server.close()
        self._builders.shutdown(cancel_futures=True)
        self._disposers.shutdown(cancel_futures=True)
        self._topic_deleters.shutdown(cancel_futures=True)

    def _cancel_builds(self, wanted: frozenset[str]) -> None:
        """Kills programs that are being built and are not wanted any more."""
        with self._builds:
            self._wanted = wanted
            for key, server in self._building.items():
                if key not in wanted:
                    server.cancel()

    def _forget(self, instruction: DeleteJobTopics) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                self._delete_job_data(instruction.job_ids, self._closed)
            except Exception as error:
                _log.warning(
                    "cannot delete the topics and blobs of expired jobs; retries",
                    seconds=pause_s,
                    error=str(error),
                )
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            if not self._closed.is_set():
                body = dispatcher.JobsForgotten(job_ids=instruction.job_ids)
                self._say(DISPATCHER, OutgoingEvent(DISPATCHER, body, instruction.cause))
            return

    def _build(self, instruction: BuildJobGraph) -> None:
        entry_point = instruction.entry_point
        body: Body
        server = self._idle.get()
        try:
            with self._builds:
                if instruction.key not in self._wanted:
                    return
                self._building[instruction.key] = server
            graph = build(
                entry_point.target,
                entry_point.arguments,
                instruction.parallelism,
                entry_point.configuration,
                python_files=entry_point.python_files,
                blobs=self._files(instruction),
                server=server,
            )
            try:
                graph = self._inline.move_to_blobs(_set_parallelism(graph, instruction), instruction.job_id)
            except GraphTooLarge as error:
                raise ProgramError(f"{entry_point.target}: {error}") from error
            body = dispatcher.JobGraphBuilt(job_id=instruction.job_id, job_graph=graph)
        except (ProgramError, BlobError) as error:
            body = dispatcher.JobGraphFailed(job_id=instruction.job_id, reason=str(error))
        except Exception as error:
            # Nobody waits for the result of this thread: without an event the client gets no answer.
            reason = f"{entry_point.target} could not be run: {type(error).__name__}: {error}"
            body = dispatcher.JobGraphFailed(job_id=instruction.job_id, reason=reason)
        finally:
            with self._builds:
                self._building.pop(instruction.key, None)
                is_wanted = instruction.key in self._wanted
            self._idle.put(server)
        if self._closed.is_set() or not is_wanted:
            # The program was killed, without an error of its own: the next leader builds its graph, or its job was
            # cancelled.
            return
        self._say(DISPATCHER, OutgoingEvent(DISPATCHER, body, instruction.cause))

    def _files(self, instruction: BuildJobGraph) -> dict[str, str]:
        """Returns the program's files that are blobs: key -> local file. Raises BlobError."""
        keys = file_keys(instruction.entry_point)
        if keys and self._blobs is None:
            raise BlobError(
                f"{instruction.entry_point.target} was submitted as blobs, but this jobmanager has no BlobServer"
            )
        return {
            text: str(self._blobs.file(parse(text, instruction.job_id)))
            for text in keys
            if self._blobs is not None
        }

    def _dispose(self, instruction: DisposeSavepoint) -> None:
        try:
            # Requested in an earlier term: its leader may have deleted the savepoint, and died before its answer.
            is_second = self._elected is not None and self._elected > instruction.request
            done = self._delete(instruction.path, may_be_gone=is_second, tenant=instruction.tenant)
        except Exception as error:
            # As above.
            done = DisposalResult(f"{instruction.path} could not be deleted: {type(error).__name__}: {error}")
        body = dispatcher.SavepointDisposed(
            path=instruction.path, failure=done.failure, request=instruction.request, left=done.left
        )
        self._say(DISPATCHER, OutgoingEvent(DISPATCHER, body, instruction.request))


def _set_parallelism(graph: JobGraph, instruction: BuildJobGraph) -> JobGraph:
    """Returns the graph with the key groups of the savepoint that the job starts from, if it can be read here."""
    configuration = job_configuration(instruction.configuration, graph.configuration)
    return with_key_groups_at(instruction.savepoint_path or STATE_RECOVERY_PATH.of(configuration), graph)
