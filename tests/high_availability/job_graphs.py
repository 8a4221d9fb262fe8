"""Jobs for tests of masters: one vertex each, so no channels."""

from __future__ import annotations

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.schemas.types import EntryPoint, JobGraph, PythonFile

AT_ONCE = "at once"
"""The name of jobs that finish as soon as they run."""
FINISH_AT_ONCE = ("at-once-", "program-")
"""How the ids of jobs start that finish as soon as they run."""
LASTING = "lasting"
"""The name of those that run until they are told to finish, or are cancelled."""


def graph(name: str, parallelism: int = 1) -> JobGraph:
    """Returns a chain of a source and a sink: one task for each slot of the parallelism."""
    environment = StreamExecutionEnvironment()
    environment.set_parallelism(parallelism)
    environment.generate(lambda index: str(index), rate_per_second=1).print()
    return environment.get_job_graph(name)


def program(seconds: float) -> EntryPoint:
    """Returns a program that takes so long to build a graph that finishes AT_ONCE."""
    text = f"""
import time

from tailrace.pipelines.api import StreamExecutionEnvironment


def main():
    time.sleep({seconds})
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.generate(lambda index: str(index), rate_per_second=1).print()
    environment.execute({AT_ONCE!r})
"""
    file = PythonFile(path="slow_program.py", content=text.encode())
    return EntryPoint(target="slow_program:main", arguments=(), python_files=(file,))
