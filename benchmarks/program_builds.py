"""Programs per second whose graphs the jobmanager's two builders build.

`forked_per_s`: by servers that have the API imported and fork a process for each program. `started_per_s`: by a new
interpreter for each. `raw_per_s`: the raw limit, interpreters that import nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from _report import conditions, report
from _scale import scaled

from tailrace.pipelines.graph.build_server import BuildServer
from tailrace.pipelines.graph.program import build

PROGRAMS = scaled(200, least=4)
BUILDERS = 2
TARGET = "tailrace.pipelines.examples.window_word_count:main"
ARGUMENTS = ("--hostname", "127.0.0.1", "--port", "1")


def rate(work: Callable[[int], object]) -> float:
    """Returns how often per second the builders complete `work`; it gets the builder's number."""

    def share(builder: int) -> None:
        for _ in range(PROGRAMS // BUILDERS):
            work(builder)

    start = time.perf_counter()
    with ThreadPoolExecutor(BUILDERS) as pool:
        list(pool.map(share, range(BUILDERS)))
    return PROGRAMS // BUILDERS * BUILDERS / (time.perf_counter() - start)


def main() -> None:
    servers = [BuildServer() for _ in range(BUILDERS)]
    try:
        for server in servers:
            build(TARGET, ARGUMENTS, server=server)
        forked = rate(lambda builder: build(TARGET, ARGUMENTS, server=servers[builder]))
    finally:
        for server in servers:
            server.close()
    figures = {
        "forked_per_s": forked,
        "started_per_s": rate(lambda _: build(TARGET, ARGUMENTS)),
        "raw_per_s": rate(lambda _: subprocess.run([sys.executable, "-S", "-c", "0"], check=True)),
    }
    notes = {
        "forked_per_s": "aim: above 7",
        "started_per_s": "the same with a server for each program",
        "raw_per_s": "raw limit of the latter: interpreters that import nothing",
    }
    report("program_builds", figures, conditions(programs=PROGRAMS, builders=BUILDERS), notes)


if __name__ == "__main__":
    main()
