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


@functools.cache
def is_users(path: str) -> bool:
    """Whether a source file is the user's own: neither Python's, nor an installed package's, nor tailrace's."""
    # As text first, and once: a process has hundreds of modules, and to resolve a path takes half a millisecond.
    if path.startswith(("<", *_foreign_roots())) or _INSTALLED.search(path):
        return False
    resolved = os.path.realpath(path)
    return not (resolved.startswith(_foreign_roots()) or _INSTALLED.search(resolved))


@functools.cache
def _foreign_roots() -> tuple[str, ...]:
    """Prefixes of the paths of source files that are not the user's, as they are written and resolved."""
    package = Path(__file__).parents[1]
    folders = ("api", "functions", "graph")
    own = [str(package / "types.py"), *(str(package / name) + os.sep for name in folders)]
    paths = sysconfig.get_paths()
    found = [paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({*own, *found, *map(_resolved, own), *map(_resolved, found)})


def _resolved(path: str) -> str:
    return os.path.realpath(path) + (os.sep if path.endswith(os.sep) else "")
