"""Runs a command of tailrace at a pseudo terminal: a test types, and reads the output up to the next prompt."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from typing import Self


class TerminalPrompt:
    """Runs `tailrace ARGUMENTS` at a pseudo terminal, a plain one or one that `terminal` (environment variables)
    describes.

    A context manager; the command is killed at the end.
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
        r"""Types the keys one after the other: `\t` is Tab, `\x04` is Ctrl-D."""
        os.write(self._terminal, keys.encode())

    def until(self, text: str, silence_s: float = 60.0) -> str:
        """Returns the output up to and including the text. Each read has a timeout.

        Raises OSError if the command ends before.
        """
        output = b""
        while text.encode() not in output:
            ready, _, _ = select.select([self._terminal], [], [], silence_s)
            assert ready, f"never said: {text!r}"
            output += os.read(self._terminal, 1 << 16)
        return output.decode(errors="replace")

    def end(self, patience_s: float = 30.0) -> int:
        """Waits for the end of the command and returns its exit code."""
        return self._process.wait(patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)
