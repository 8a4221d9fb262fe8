"""How processes of ours are started from modules of ours."""

from __future__ import annotations

import sys


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs a module in this interpreter.

    Without the working directory on sys.path, where Python would put it first: there users have folders and files
    called pipelines, services or logging.
    """
    return [sys.executable, "-P", "-m", name, *arguments]
