"""The Dispatcher's shell: says what configuration holds, admits submissions, has programs build their graphs, and
deletes savepoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ...pipelines.graph.errors import ProgramError
from ...pipelines.graph.program import build
from ...schemas import dispatcher, everyone
from ...schemas.body import Body
from ...schemas.event import EVERYONE
from ..begun import Begun
from ..log.topics import LARGEST_SUBMISSION
from ..roles import DISPATCHER, Instruction, Owed, Say
from .checkpoints import DisposeSavepoint
from .role import BuildJobGraph
from .savepoints import Disposed, dispose
from .state import DispatcherState
from .submissions import SubmissionsReader

_BUILDERS = 2


class DispatcherShell:
    """Runs programs in processes of their own: user code never enters the jobmanager."""

    def __init__(
        self, say: Say, submissions: SubmissionsReader, configuration: Mapping[str, str] | None = None
    ) -> None:
        """`configuration` is what the cluster is to go by, as ConfigurationChanged has it; None: what the log says."""
        self._say = say
        self._configuration = configuration
        self._configured = False
        self._submissions = submissions
        self._admitting = False
        self._begun = Begun()
        self._builders = ThreadPoolExecutor(_BUILDERS, thread_name_prefix="build")
        # Storage may be slow, and must not keep programs waiting.
        self._disposers = ThreadPoolExecutor(1, thread_name_prefix="dispose")

    def obey(self, role_address: str, instructions: Sequence[Instruction], state: object) -> None:
        if not self._admitting and isinstance(state, DispatcherState):
            self._admit(state)
        for instruction in self._begun.new(role_address, instructions):
            match instruction:
                case BuildJobGraph():
                    self._builders.submit(self._build, instruction)
                case DisposeSavepoint():
                    self._disposers.submit(self._dispose, instruction)
                case _:
                    raise TypeError(f"the Dispatcher's shell does not know {instruction!r}")

    def _admit(self, state: DispatcherState) -> None:
        """Once the configuration has been read back from the log: every job that is admitted here goes by it."""
        if self._configuration in (None, state.configuration):
            self._admitting = True
            self._submissions.start(state.positions)
        elif not self._configured:
            self._configured = True
            changed = everyone.ConfigurationChanged(configuration=self._configuration)
            self._say(DISPATCHER, Owed(EVERYONE, changed, None))

    def close(self) -> None:
        self._submissions.close()
        self._builders.shutdown(cancel_futures=True)
        self._disposers.shutdown(cancel_futures=True)

    def _build(self, instruction: BuildJobGraph) -> None:
        entry_point = instruction.entry_point
        body: Body
        try:
            graph = build(
                entry_point.target,
                entry_point.arguments,
                instruction.parallelism,
                entry_point.configuration,
                python_files=entry_point.python_files,
            )
            size = len(msgspec.msgpack.encode(graph))
            if size > LARGEST_SUBMISSION:
                raise ProgramError(
                    f"{entry_point.target} built a graph of {size:,} bytes, but at most {LARGEST_SUBMISSION:,} are "
                    "taken: let its functions load what they need instead of carrying it with them, and ship less"
                )
            body = dispatcher.JobGraphBuilt(job_id=instruction.job_id, job_graph=graph)
        except ProgramError as error:
            body = dispatcher.JobGraphFailed(job_id=instruction.job_id, reason=str(error))
        except Exception as error:
            # Nobody asks for the outcome of this thread: what is not said here leaves the client without an answer.
            reason = f"{entry_point.target} could not be run: {type(error).__name__}: {error}"
            body = dispatcher.JobGraphFailed(job_id=instruction.job_id, reason=reason)
        self._say(DISPATCHER, Owed(DISPATCHER, body, instruction.cause))

    def _dispose(self, instruction: DisposeSavepoint) -> None:
        try:
            done = dispose(instruction.path)
        except Exception as error:
            # As above.
            done = Disposed(f"{instruction.path} could not be deleted: {type(error).__name__}: {error}")
        body = dispatcher.SavepointDisposed(
            path=instruction.path, failure=done.failure, request=instruction.request, left=done.left
        )
        self._say(DISPATCHER, Owed(DISPATCHER, body, instruction.request))
