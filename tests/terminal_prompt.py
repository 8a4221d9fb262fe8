"""A command of ours at a terminal of its own, as a person has it: typed to, and read up to its next prompt."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from typing import Self


class TerminalPrompt:
    """`tailrace ARGUMENTS` at a pseudo terminal, a plain one or as `terminal` (variables of the environment) says.

    A context manager; killed at its end.
    """

    def __init__(self, *arguments: str, **terminal: str) -> None:
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tailrace.services.cli", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "dumb", **terminal},
            start_new_session=True,
        )
        os.close(theirs)

    def type(self, keys: str) -> None:
        """Keys are pressed, one after the other: `\\t` is Tab, `\\x04` Ctrl-D."""
        os.write(self._terminal, keys.encode())

    def until(self, text: str, silence_s: float = 60.0) -> str:
        """What comes, up to and with the text; it may be silent for so long.

        Raises OSError where the command has ended before.
        """
        said = b""
        while text.encode() not in said:
            ready, _, _ = select.select([self._terminal], [], [], silence_s)
            assert ready, f"never said: {text!r}"
            said += os.read(self._terminal, 1 << 16)
        return said.decode(errors="replace")

    def end(self, patience_s: float = 30.0) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)
