"""The server side of graph/build_server.py: forks a process for each program, and reports its exit status.

Run it as `python -m tailrace.pipelines.api.build_server`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from ..graph.build_server import PRINTED, REQUEST, RESULT
from ..graph.errors import ProgramError, ProgramExited
from ..graph.program import BuildRequest, BuildResult
from ..graph.python_files import import_from, unpack
from .build import plan

_FILES = "files"


def serve() -> None:
    """Serves requests until the end of stdin."""
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        for line in requests:
            gate, gate_keeper = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(gate_keeper)
                requests.close()
                answers.close()
                _run(Path(os.fsdecode(line.rstrip(b"\n"))), gate)
            os.close(gate)
            answers.write(f"{pid}\n".encode())
            with contextlib.suppress(BrokenPipeError):
                # The fork may have failed already.
                os.write(gate_keeper, requests.readline())
            os.close(gate_keeper)
            answers.write(f"{_wait(pid)}\n".encode())


def _wait(pid: int) -> int:
    """Returns the exit status. Kills all processes of the program's process group that still run."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _run(directory: Path, gate: int) -> NoReturn:
    """Runs a program once a line comes from `gate`, not if it closes before."""
    status = 1
    try:
        os.setsid()
        _die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDONLY)
        printed = os.open(directory / PRINTED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((nothing, 0), (printed, 1), (printed, 2)):
            os.dup2(source, target)
        if not os.read(gate, 1):
            os._exit(status)
        os.close(gate)
        request = msgspec.json.decode((directory / REQUEST).read_bytes(), type=BuildRequest)
        result = _result(request, directory / _FILES)
        # Threads and exit handlers of the program must not delay the answer.
        complete = directory / f"{RESULT}.new"
        complete.write_bytes(msgspec.msgpack.encode(result))
        complete.replace(directory / RESULT)
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _result(request: BuildRequest, files: Path) -> BuildResult:
    try:
        _import_from(request, files)
        made = plan(request, str(files))
    except ProgramError as error:
        exited = isinstance(error, ProgramExited) and isinstance(error.status, int)
        return BuildResult(error=str(error), exited=exited)
    return BuildResult(
        job_graph=made.job_graph,
        stream_graph=made.stream_graph if request.wants_stream_graph else None,
    )


def _import_from(request: BuildRequest, files: Path) -> None:
    """Puts the program's own files first, and the working directory last: its modules must not hide those of
    tailrace."""
    sys.path.append(os.getcwd())
    if request.python_files:
        files.mkdir()
        unpack(request.python_files, files, request.blobs)
        import_from(files)


def _die_with_parent() -> None:
    """Asks the kernel to kill this process with its parent: a program that hangs must not outlive a killed
    jobmanager."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    # Ctrl-C in a terminal reaches every process; the parent of this one decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    serve()
