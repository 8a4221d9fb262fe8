"""Finds the line of the user's code that made a call, for error messages."""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
import types
from pathlib import Path

_API = __name__.rpartition(".")[0]
_INSTALLED = re.compile(r"[\\/](site|dist)-packages[\\/]")


def caller_location() -> str:
    """Returns file:line of the innermost frame outside the API: the user's call."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_API):
        frame = frame.f_back
    return "?" if frame is None else f"{shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def shown_path(path: str) -> str:
    """Returns the path for messages: relative if it is below the working directory."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if relative.startswith(os.pardir) else relative


@functools.cache
def is_users(path: str) -> bool:
    """Whether a source file belongs to the user, not to Python, an installed package or tailrace."""
    # As text, and only once: a process has hundreds of modules, and resolving a path takes half a millisecond.
    if path.startswith(("<", *_foreign_roots())) or _INSTALLED.search(path):
        return False
    resolved = os.path.realpath(path)
    return not (resolved.startswith(_foreign_roots()) or _INSTALLED.search(resolved))


@functools.cache
def _foreign_roots() -> tuple[str, ...]:
    """Returns prefixes of the paths of source files that are not the user's, unresolved and resolved."""
    package = Path(__file__).parents[1]
    folders = ("api", "functions", "graph", "runtime", "testing")
    own = [str(package / "types.py"), *(str(package / name) + os.sep for name in folders)]
    paths = sysconfig.get_paths()
    found = [paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({*own, *found, *map(_resolved, own), *map(_resolved, found)})


def _resolved(path: str) -> str:
    return os.path.realpath(path) + (os.sep if path.endswith(os.sep) else "")
