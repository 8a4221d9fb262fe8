"""Runs programs: files for `tailrace run`, and entry points for the jobmanager.

For the jobmanager, build_server.py runs each program in a process of its own.

Every error of a program becomes a ProgramError with the line of the program.
"""

from __future__ import annotations

import contextlib
import importlib
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from ...schemas.types import JobGraph, PythonFile
from ..graph.errors import ProgramError, ProgramExited
from ..graph.program import BuildRequest
from ..graph.stream_graph import StreamGraph
from .executor import JobClient, PipelineExecutor, ProgramContext, current_context, program_context
from .source_location import is_users, shown_path


def build(
    target: str,
    arguments: Sequence[str] = (),
    parallelism: int | None = None,
    configuration: Mapping[str, str] | None = None,
    *,
    python_files: Sequence[PythonFile] = (),
    python_path: str | None = None,
) -> JobGraph:
    """Returns the JobGraph of the program `module:function`, called with the arguments as strings.

    Runs the program in this process, up to its first `execute`. `python_files` are the files that its job ships.
    `python_path` is the directory that holds them; it is already on the import path. Raises ProgramError.
    """
    return _captured(
        lambda: _call_entry_point(target, arguments),
        target,
        _context(parallelism, configuration, python_files, python_path),
    ).job_graph


def build_file(
    path: str,
    arguments: Sequence[str] = (),
    parallelism: int | None = None,
    configuration: Mapping[str, str] | None = None,
    *,
    python_files: Sequence[PythonFile] = (),
    python_path: str | None = None,
) -> JobGraph:
    """Like `build`, for a file PROGRAM.py, which runs as __main__. Raises ProgramError."""
    return _captured(
        lambda: _run_as_main(path, arguments),
        path,
        _context(parallelism, configuration, python_files, python_path),
    ).job_graph


@dataclass(frozen=True, slots=True)
class Plan:
    """A program's first job, before and after its operators are chained."""

    stream_graph: StreamGraph
    job_graph: JobGraph


def plan(request: BuildRequest, python_path: str) -> Plan:
    """Calls `build` or `build_file`, as the request says. Raises ProgramError."""
    target, file = request.target or "", request.file
    return _captured(
        lambda: (
            _call_entry_point(target, request.arguments)
            if file is None
            else _run_as_main(file, request.arguments)
        ),
        target if file is None else file,
        _context(request.parallelism, request.configuration, request.python_files, python_path),
    )


def run_file(
    path: str,
    arguments: Sequence[str],
    executor: PipelineExecutor,
    *,
    parallelism: int | None = None,
    configuration: Mapping[str, str] | None = None,
    python_files: Sequence[PythonFile] = (),
    python_path: str | None = None,
) -> None:
    """Runs PROGRAM.py as __main__, from start to end, and passes its jobs to the executor.

    `python_files` are the files that its jobs ship. `python_path` is the directory that holds them; it is already on
    the import path. Raises ProgramError if the file does not exist, raises, exits with a status other than 0
    (ProgramExited), or ends without having executed a job.
    """
    counting = _Counting(executor)
    context = _context(parallelism, configuration, python_files, python_path)
    with program_context(context(counting)):
        try:
            with _reasons(path):
                _run_as_main(path, arguments)
        except ProgramExited as exited:
            if exited.status == 0:
                return
            raise
    if counting.jobs == 0:
        raise _never_executes(path)


class _Counting:
    def __init__(self, executor: PipelineExecutor) -> None:
        self._executor = executor
        self.jobs = 0

    def execute(self, job_graph: JobGraph) -> JobClient:
        client = self._executor.execute(job_graph)
        self.jobs += 1
        return client


class _Captured(BaseException):
    """Ends a program at its first `execute`. It is not an Exception, so that the program does not catch it by
    accident."""


class _Capturing:
    """Stores the first job that a program executes."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self._stream_graph: StreamGraph | None = None

    def translating(self, stream_graph: StreamGraph) -> None:
        self._stream_graph = stream_graph

    def execute(self, job_graph: JobGraph) -> NoReturn:
        if self.plan is None and self._stream_graph is not None:
            self.plan = Plan(self._stream_graph, job_graph)
        raise _Captured


Context = Callable[[PipelineExecutor], ProgramContext]


def _context(
    parallelism: int | None,
    configuration: Mapping[str, str] | None,
    python_files: Sequence[PythonFile],
    python_path: str | None,
) -> Context:
    """Returns the context of the program, without an executor."""
    return lambda executor: ProgramContext(
        executor, parallelism, configuration or {}, python_files, python_path
    )


def _captured(run: Callable[[], None], program: str, context: Context) -> Plan:
    executor = _Capturing()
    watched = replace(context(executor), on_stream_graph=executor.translating)
    try:
        with program_context(watched), _reasons(program):
            run()
    except (_Captured, ProgramError):
        if executor.plan is None:  # what the program did after that does not matter
            raise
    if executor.plan is None:
        raise _never_executes(program)
    return executor.plan


def _never_executes(program: str) -> ProgramError:
    return ProgramError(f"{program} ended without executing a job: call env.execute() on its environment")


def run_shipped_file(name: str, *arguments: str) -> None:
    """The entry point of a program that is a file PROGRAM.py among the shipped files: runs it as __main__, in their
    directory."""
    context = current_context()
    if context is None or context.python_path is None:
        raise ProgramError(f"the program {name} does not exist: no files were shipped")
    with contextlib.chdir(context.python_path), _reasons(name):
        _run_as_main(name, arguments)


def _call_entry_point(target: str, arguments: Sequence[str]) -> None:
    module_name, separator, function_name = target.partition(":")
    if not (separator and module_name and function_name):
        raise ProgramError(f"the entry point {target!r} is not of the form module:function")
    found: object = _import(module_name, target)
    for name in function_name.split("."):
        if not hasattr(found, name):
            raise ProgramError(
                f"the entry point {target!r} does not exist: {module_name} has no {function_name}"
            )
        found = getattr(found, name)
    if not callable(found):
        raise ProgramError(f"the entry point {target!r} is not a function but {type(found).__name__}")
    found(*arguments)


def _import(module_name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ProgramError(
                f"the entry point {target!r} does not exist: no module {missing!r} can be imported here"
            ) from error
        raise
    except (ValueError, TypeError) as error:  # not a module name, such as `.x`
        if module_name.startswith(".") or not all(part.isidentifier() for part in module_name.split(".")):
            raise ProgramError(f"the entry point {target!r} does not name a module") from error
        raise


def _run_as_main(path: str, arguments: Sequence[str]) -> None:
    if not Path(path).is_file():
        what = "a directory" if Path(path).is_dir() else "no file"
        raise ProgramError(f"the program {path} does not exist: there is {what} of that name")
    before = sys.argv[:], sys.path[:]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv[:], sys.path[:] = before


@contextlib.contextmanager
def _reasons(program: str) -> Iterator[None]:
    """Converts every error that ends a program into a ProgramError, except those that the program has not caused."""
    try:
        yield
    except (ProgramError, _Captured, KeyboardInterrupt):
        raise
    except SystemExit as error:
        # For SystemExit with a text, Python prints the text and exits with status 1.
        status = 0 if error.code is None else error.code if isinstance(error.code, int) else str(error.code)
        reason = (
            f"{program} exited with status {status}" if isinstance(status, int) else f"{program}: {status}"
        )
        raise ProgramExited(reason, location=_location(error), status=status) from error
    except BaseException as error:
        text = str(error)
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise ProgramError(f"{program} raised {reason}", location=_location(error)) from error


def _location(error: BaseException) -> str | None:
    """Returns file:line of the innermost frame in the user's own code that raised an exception, if there is one."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{shown_path(error.filename)}:{error.lineno}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return f"{shown_path(own[-1].filename)}:{own[-1].lineno}" if own else None
