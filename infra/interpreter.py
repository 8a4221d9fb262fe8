"""The commands that start tailrace's modules as processes."""

from __future__ import annotations

import sys


def module_command(name: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module in this interpreter.

    The working directory is not on sys.path, where Python would put it first: users have folders and files named
    pipelines, services or logging there.
    """
    return [sys.executable, "-P", "-m", name, *arguments]
