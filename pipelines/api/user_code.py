"""The user's functions: where they were written, what their hints say, and how they travel.

Functions are pickled by value where the workers could not import them: those of the program itself and of
modules that lie beside it rather than in an installed package. Installed packages are imported where the
job runs.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import os
import re
import sys
import sysconfig
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..graph.errors import ProgramError
from ..types import RecordType

_API = __name__.rpartition(".")[0]
_PACKAGE = __name__.split(".", 1)[0]
_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")


def caller_location() -> str:
    """file:line of the innermost frame outside the API: the user's call."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_API):
        frame = frame.f_back
    return "?" if frame is None else f"{shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def shown_path(path: str) -> str:
    """The path as people know it: relative to the working directory where it lies below."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if relative.startswith(os.pardir) else relative


def check_function(function: object, arguments: int, *, operator: str, location: str) -> None:
    """Raises ProgramError if the function cannot be called with that many arguments for one value."""

    def refuse(reason: str) -> ProgramError:
        return ProgramError(reason, operator=operator, location=location)

    if not callable(function):
        raise refuse(f"it needs a function, not {type(function).__name__} {function!r}")
    called = _called(function)
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise refuse(f"its function {_name(function)} is async, which operators cannot await")
    if operator != "flat_map" and inspect.isgeneratorfunction(called):
        raise refuse(f"its function {_name(function)} yields values instead of returning one: use flat_map")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):  # some builtins have none
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        wanted = "1 argument" if arguments == 1 else f"{arguments} arguments"
        raise refuse(f"its function {_name(function)}{signature} cannot be called with {wanted}") from None


def return_type(function: Callable[..., Any]) -> RecordType:
    """The record type of what a function returns, by its hints; pickled where it has none.

    A class called as a function returns its instances.
    """
    if isinstance(function, type):
        return RecordType.of(function)
    return RecordType.of(_return_hint(function))


def element_type(function: Callable[..., Any]) -> RecordType:
    """The record type of the elements of what a function returns: Iterator[X], list[X], tuple[X, ...], ..."""
    hint = _return_hint(function)
    if hint is str:
        return RecordType.of(str)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if not isinstance(origin, type) or not issubclass(origin, collections.abc.Iterable) or not arguments:
        return RecordType.of(None)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return RecordType.of(arguments[0] if len(set(arguments)) == 1 else None)
    return RecordType.of(arguments[0])


def dump_functions(
    functions: tuple[Callable[..., Any], ...], *, operator: str, location: str | None
) -> bytes:
    """The functions for OperatorConfig.code or JobEdge.code. Raises ProgramError where they cannot be pickled."""
    if not functions:
        return b""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(functions))
    except Exception as error:  # a user's own __reduce__ may raise anything
        raise ProgramError(
            f"its function cannot be sent to the cluster: {type(error).__name__}: {error};"
            " make what cannot be pickled in open() of a callable object, or inside the function",
            operator=operator,
            location=location,
        ) from error


@contextmanager
def local_modules_by_value() -> Iterator[None]:
    """While this lasts, cloudpickle takes modules that are installed nowhere along by value."""
    import cloudpickle

    already = set(cloudpickle.list_registry_pickle_by_value())
    modules = [m for m in list(sys.modules.values()) if _is_local(m) and m.__name__ not in already]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def is_users(path: str) -> bool:
    """Whether a source file is the user's own: neither Python's, nor an installed package's, nor tailrace's."""
    # As text first: a process has hundreds of modules, and to resolve a path takes half a millisecond.
    if path.startswith(("<", *_foreign_roots())) or _INSTALLED.search(path):
        return False
    resolved = os.path.realpath(path)
    return not (resolved.startswith(_foreign_roots()) or _INSTALLED.search(resolved))


def _is_local(module: types.ModuleType) -> bool:
    name, path = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if not isinstance(path, str) or name == "__main__" or sys.modules.get(name) is not module:
        return False
    return name.split(".", 1)[0] != _PACKAGE and is_users(path)


@functools.cache
def _foreign_roots() -> tuple[str, ...]:
    """Prefixes of the paths of source files that are not the user's, as they are written and resolved."""
    package = Path(__file__).parents[1]
    own = [str(package / "types.py"), *(str(package / name) + os.sep for name in ("api", "graph"))]
    paths = sysconfig.get_paths()
    found = [paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({*own, *found, *map(_resolved, own), *map(_resolved, found)})


def _resolved(path: str) -> str:
    return os.path.realpath(path) + (os.sep if path.endswith(os.sep) else "")


def _called(function: Callable[..., Any]) -> Any:
    """The Python function behind a callable: of a partial, a method, an object with __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(function).__call__


def _return_hint(function: Callable[..., Any]) -> object:
    called = inspect.unwrap(_called(function))
    if isinstance(called, type):
        return called
    try:
        return typing.get_type_hints(called, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):  # imported for type checkers only, or no hints at all
        return _return_hint_alone(called)


def _return_hint_alone(called: Any) -> object:
    """The return hint where another hint, or a class local to a function, keeps them from being read together."""
    hint = getattr(called, "__annotations__", {}).get("return")
    if not isinstance(hint, str):
        return hint
    names = dict(getattr(called, "__globals__", {}))
    code, cells = getattr(called, "__code__", None), getattr(called, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    try:
        return eval(hint, names)
    except Exception:
        return None


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
