"""How processes of ours are started from modules of ours."""

from __future__ import annotations

import os
import sys


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a module in this interpreter.

    Without the working directory on sys.path, where Python would put it first: there users have folders and files
    called pipelines, services or logging.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def end_with_owner() -> None:
    """Ends this process when its standard input does: when whoever started it is gone. For a thread of its own."""
    # Not by way of sys.stdin: the interpreter can't end in order while a thread waits in that.
    while os.read(0, 1):
        pass
    os._exit(1)
