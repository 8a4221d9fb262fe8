"""Processes of a benchmark, with lines of JSON on their standard input and output."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import structlog

_PATIENCE_S = 20.0


class Member:
    """The benchmark's end of a process that runs the file `program` with these arguments.

    The process ends when its standard input does. With PROFILE=PATH in the environment cProfile writes
    PATH.FIRST-ARGUMENT.
    """

    def __init__(self, program: str | Path, *arguments: object) -> None:
        command = [sys.executable, str(program), *map(str, arguments)]
        profile = os.environ.get("PROFILE")
        if profile:
            command[1:1] = ["-m", "cProfile", "-o", f"{profile}.{arguments[0]}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: object) -> dict[str, Any]:
        """Returns the process's answer. Raises RuntimeError if it is dead."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """Returns the next message of the process. Raises RuntimeError if it is dead."""
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RuntimeError(f"a process of the benchmark died: exit code {self._process.wait()}")
        message: dict[str, Any] = json.loads(line)
        return message

    def cpu_s(self) -> float:
        """Returns the seconds of CPU that it has used."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """Ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def speak_in_json() -> None:
    """In a member, called first: sends log lines to stderr, warnings only."""
    sys.stdout = sys.stderr
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def say(**message: object) -> None:
    """In a member: sends the next message to the benchmark. Other output appears in the text of an error."""
    sys.stdout = sys.stderr
    print(json.dumps(message), flush=True, file=sys.__stdout__)
