"""Builds the graph of a program that is named, not shipped, in a separate process.

The jobmanager never runs user code. It asks a BuildServer, which forks a process that runs the program and answers a
BuildRequest with a BuildResult. The resulting JobGraph is validated here.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ...schemas.types import JobGraph, PythonFile
from .build_server import PRINTED, REQUEST, RESULT, BuildServer, BuildServerClosed, BuildTimeout
from .errors import InvalidJobGraph, ProgramError, one_line
from .python_files import MAX_SHIPPED_BYTES
from .stream_graph import StreamGraph
from .validation import check

BUILD_TIMEOUT_S = 60.0
"""Enough to import the packages of data programs on a busy machine; a program that waits for ever is an error."""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The program whose graph is built: an entry point `module:function`, or a file."""

    target: str | None = None
    file: str | None = None
    arguments: tuple[str, ...] = ()
    parallelism: int | None = None
    """The default parallelism; None for the program's own."""
    configuration: dict[str, str] = {}
    """Options of the job, which the program may override."""
    python_files: tuple[PythonFile, ...] = ()
    """The files that the program is imported from, before any other; its job ships them too."""
    blobs: dict[str, str] = {}
    """The blobs among them: key -> the local file with the content."""
    wants_stream_graph: bool = False
    """Whether the StreamGraph is returned too, for display."""


class BuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """The graph, or the error in one line, with the line of the program."""

    job_graph: JobGraph | None = None
    stream_graph: StreamGraph | None = None
    error: str | None = None
    exited: bool = False
    """Whether the program called sys.exit: its output gives the reason."""


def build(
    target: str,
    arguments: Sequence[str] = (),
    parallelism: int | None = None,
    configuration: Mapping[str, str] | None = None,
    *,
    python_files: Sequence[PythonFile] = (),
    blobs: Mapping[str, str] | None = None,
    timeout_s: float = BUILD_TIMEOUT_S,
    server: BuildServer | None = None,
) -> JobGraph:
    """Returns the valid JobGraph of the program `module:function`, called with the arguments.

    The module is imported from `python_files` first, if there are any. `blobs`: local files for those that are blobs.
    `server` forks the program's process; None: a server for this program alone. Blocks until the process has ended; all
    processes that the program started end with it. Raises ProgramError: one line for the person who submitted the
    program.
    """
    return build_request(
        BuildRequest(
            target=target,
            arguments=tuple(arguments),
            parallelism=parallelism,
            configuration=dict(configuration or {}),
            python_files=tuple(python_files),
            blobs=dict(blobs or {}),
        ),
        timeout_s=timeout_s,
        server=server,
    )


def build_request(
    request: BuildRequest, *, timeout_s: float = BUILD_TIMEOUT_S, server: BuildServer | None = None
) -> JobGraph:
    """Like `build`, for any request."""
    _, graph = _built(request, timeout_s, server)
    return graph


def build_plan(request: BuildRequest, *, timeout_s: float = BUILD_TIMEOUT_S) -> tuple[StreamGraph, JobGraph]:
    """Like `build_request`, with the StreamGraph that the JobGraph is made from."""
    stream_graph, graph = _built(msgspec.structs.replace(request, wants_stream_graph=True), timeout_s)
    if stream_graph is None:
        raise ProgramError(f"{_name(request)} returned no StreamGraph")
    return stream_graph, graph


def _built(
    request: BuildRequest, timeout_s: float, server: BuildServer | None = None
) -> tuple[StreamGraph | None, JobGraph]:
    name = _name(request)
    try:
        with contextlib.ExitStack() as stack:
            if server is None:
                server = BuildServer()
                stack.callback(server.close)
            returncode, output, printed = _run(server, request, name, timeout_s)
    except OSError as error:
        raise ProgramError(f"no process could be started to build the graph of {name}: {error}") from error
    result = _result(name, returncode, output, printed)
    if result.job_graph is None:
        reason = result.error or f"{name} returned neither a graph nor an error"
        raise ProgramError(reason + (_last_line(printed) if result.exited else ""))
    try:
        check(result.job_graph, MAX_SHIPPED_BYTES)
    except InvalidJobGraph as error:
        raise ProgramError(f"{name} built a graph that cannot be run: {error}") from error
    return result.stream_graph, result.job_graph


def _name(request: BuildRequest) -> str:
    return request.target or request.file or "the program"


def _run(server: BuildServer, request: BuildRequest, name: str, timeout_s: float) -> tuple[int, bytes, bytes]:
    """Returns exit status, answer, and printed text. Raises OSError, ProgramError."""
    with tempfile.TemporaryDirectory(prefix="tailrace-build-") as made:
        directory = Path(made)
        (directory / REQUEST).write_bytes(msgspec.json.encode(request))
        try:
            status = server.run(directory, timeout_s)
        except BuildTimeout:
            raise ProgramError(f"{name} did not build its graph within {timeout_s:g} s") from None
        except BuildServerClosed as error:
            raise ProgramError(f"{name} did not build its graph: {error}") from None
        return status, _content(directory / RESULT), _content(directory / PRINTED)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _result(name: str, returncode: int, output: bytes, printed: bytes) -> BuildResult:
    try:
        return msgspec.msgpack.decode(output, type=BuildResult)
    except msgspec.DecodeError:
        how = (
            f"was killed by {_signal(-returncode)}" if returncode < 0 else f"exited with status {returncode}"
        )
        raise ProgramError(f"{name} {how} before its graph was complete{_last_line(printed)}") from None


def _last_line(printed: bytes) -> str:
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    return f"; its last output: {one_line(lines[-1])}" if lines else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
