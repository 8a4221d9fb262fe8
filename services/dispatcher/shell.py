"""The Dispatcher's shell: reports the configuration, admits submissions, builds job graphs from programs, and deletes
savepoints.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue

from ...infra import threads
from ...infra.logging_setup import logger
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
from .checkpoints import DisposeSavepoint
from .inline_limit import GraphTooLarge, InlineLimit
from .jobs import PARALLEL_BUILDS
from .role import BuildJobGraph, RaiseFeatureLevel
from .savepoints import DisposalResult, SavepointDisposer, dispose_savepoint
from .state import DispatcherState
from .submissions_topic import AdmittedPositions

_log = logger(__name__)


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
    ) -> None:
        """`configuration`: the cluster's configuration for ConfigurationChanged; None: keep the log's. `blobs`: the
        source of programs' files. `inline`: the limit of what stays in a graph. `elected`: the offset of the claim that
        started the term. `dispose` deletes the savepoint of a directory."""
        self._say = say
        self._configuration = configuration
        self._configured = False
        self._elected = elected
        self._blobs = blobs
        self._inline = inline or InlineLimit(blobs, LARGEST_SUBMISSION, LARGEST_SUBMISSION)
        self._delete = dispose
        self._submissions = submissions
        self._admitting = False
        self._begun = InstructionTracker()
        self._builders = threads.Pool(PARALLEL_BUILDS, "build")
        self._closed = threading.Event()
        self._servers = [BuildServer() for _ in range(PARALLEL_BUILDS)]
        self._idle: SimpleQueue[BuildServer] = SimpleQueue()
        for server in self._servers:
            self._idle.put(server)
        # Storage may be slow, and must not keep programs waiting.
        self._disposers = threads.Pool(1, "dispose")

    def perform(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        if isinstance(state, DispatcherState):
            self._admit(state)
        for instruction in self._begun.take_new(role_address, instructions):
            match instruction:
                case BuildJobGraph():
                    self._builders.submit(self._build, instruction)
                case DisposeSavepoint():
                    self._disposers.submit(self._dispose, instruction)
                case RaiseFeatureLevel(level=level, cause=cause, requester=requester):
                    self._raise_feature_level(level, cause, requester)
                case _:
                    raise TypeError(f"the Dispatcher's shell does not know {instruction!r}")

    def _admit(self, state: DispatcherState) -> None:
        """Starts admission once the configuration has been read back from the log: every job admitted here uses it."""
        admitted = AdmittedPositions(state.submissions_topic_id, state.positions)
        if self._admitting:
            self._submissions.follow(admitted)
        elif self._configuration in (None, state.configuration):
            self._admitting = True
            self._submissions.start(admitted)
        elif not self._configured:
            self._configured = True
            if state.configuration is None:
                # The log begins: nothing was decided yet by other rules.
                self._raise_feature_level(FEATURE_LEVEL, self._elected)
            changed = everyone.ConfigurationChanged(configuration=self._configuration)
            self._say(DISPATCHER, OutgoingEvent(EVERYONE, changed, self._elected))

    def _raise_feature_level(self, level: int, cause: int | None, requester: str = "") -> None:
        if level <= FEATURE_LEVEL:
            self._say(DISPATCHER, OutgoingEvent(EVERYONE, everyone.FeatureLevelRaised(level=level), cause))
            return
        if level > FEATURE_LEVEL + 1 and requester:
            reason = (
                f"feature level {level} is not possible: this jobmanager knows levels up to {FEATURE_LEVEL}, and the "
                f"release after it up to {FEATURE_LEVEL + 1}"
            )
            rejected = client.FeatureLevelRejected(level=level, reason=reason)
            self._say(DISPATCHER, OutgoingEvent(requester, rejected, cause))
            return
        # It stands, and is obeyed by the first leader that can.
        _log.warning(
            "a feature level was asked for that this release does not know: start masters of the newer release",
            level=level,
            known=FEATURE_LEVEL,
        )

    def close(self) -> None:
        self._closed.set()
        self._submissions.close()
        for server in self._servers:
            server.close()
        self._builders.shutdown(cancel_futures=True)
        self._disposers.shutdown(cancel_futures=True)

    def _build(self, instruction: BuildJobGraph) -> None:
        entry_point = instruction.entry_point
        body: Body
        server = self._idle.get()
        try:
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
            # Nobody asks for the outcome of this thread: what is not said here leaves the client without an answer.
            reason = f"{entry_point.target} could not be run: {type(error).__name__}: {error}"
            body = dispatcher.JobGraphFailed(job_id=instruction.job_id, reason=reason)
        finally:
            self._idle.put(server)
        if self._closed.is_set():
            # The program was ended, not at fault: the next leader builds its graph.
            return
        self._say(DISPATCHER, OutgoingEvent(DISPATCHER, body, instruction.cause))

    def _files(self, instruction: BuildJobGraph) -> dict[str, str]:
        """The program's files that are blobs: key -> local file. Raises BlobError."""
        keys = file_keys(instruction.entry_point)
        if keys and self._blobs is None:
            raise BlobError(
                f"{instruction.entry_point.target} came as blobs, and this jobmanager has no BlobServer"
            )
        return {
            text: str(self._blobs.file(parse(text, instruction.job_id)))
            for text in keys
            if self._blobs is not None
        }

    def _dispose(self, instruction: DisposeSavepoint) -> None:
        try:
            # Asked for in an earlier term: its leader may have deleted it, and died before it could say so.
            is_second = self._elected is not None and self._elected > instruction.request
            done = self._delete(instruction.path, may_be_gone=is_second)
        except Exception as error:
            # As above.
            done = DisposalResult(f"{instruction.path} could not be deleted: {type(error).__name__}: {error}")
        body = dispatcher.SavepointDisposed(
            path=instruction.path, failure=done.failure, request=instruction.request, left=done.left
        )
        self._say(DISPATCHER, OutgoingEvent(DISPATCHER, body, instruction.request))


def _set_parallelism(graph: JobGraph, instruction: BuildJobGraph) -> JobGraph:
    """The graph with the key groups of the savepoint that the job starts from, if it can be read here."""
    configuration = job_configuration(instruction.configuration, graph.configuration)
    return with_key_groups_at(instruction.savepoint_path or STATE_RECOVERY_PATH.of(configuration), graph)
