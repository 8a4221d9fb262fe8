"""The duration of a request to `tailrace history-server` for random moments of a log of one million events.

The log comes from the real roles (`_conversation.py`), as a file that `tailrace log export` writes. `build_s` is the
first fold, which leaves the marks of the history index; `fold_s`, beside it, folds the log without an index. `moment_*`
opens a moment; `overview_*` and `job_*` are whole requests over HTTP for a moment that is not kept: the overview of the
cluster, and the details of one job. `events_s` is the raw limit: 5,000 events, the most that follow a mark, read and
folded. `*_cpu_s` is the processor time of this process, which is the server.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from _report import conditions, percentile, report
from _scale import scaled
from time_travel import exported

from tailrace.infra.server_socket import listen
from tailrace.services.core.replica import tune_gc_for_replay
from tailrace.services.history import HistoryProjection
from tailrace.services.history.log_source import open_log_source
from tailrace.services.history.past_logs import LogFinder
from tailrace.services.history.state_index.index import INTERVAL
from tailrace.services.log.event_log import read_to_end
from tailrace.services.rest.application import Settings
from tailrace.services.rest.history_server import HistoryServer


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Returns the seconds of wall clock, and of the processor."""
    start, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - cpu


def fold(path: Path, first: int, end: int) -> None:
    """Reads and folds a range of the log, without an index."""
    folded = HistoryProjection()
    with open_log_source(path) as source:
        for batch in read_to_end(source.log, first, end=end):
            for record in batch:
                folded.apply(record)


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=scaled(1_000_000))
    parser.add_argument("--requests", type=int, default=scaled(200))
    arguments = parser.parse_args()
    events, drawn = arguments.events, random.Random(8)
    path = exported(events)
    tune_gc_for_replay()
    with contextlib.ExitStack() as stack:
        os.environ["TAILRACE_CACHE_DIR"] = cache = stack.enter_context(tempfile.TemporaryDirectory())
        fold_s, fold_cpu_s = timed(lambda: fold(path, 0, events))
        middle = events // 2
        events_s, _ = timed(lambda: fold(path, middle, min(events, middle + INTERVAL)))
        listening = listen("127.0.0.1", [0], 128)
        start, cpu = time.perf_counter(), time.process_time()
        server = stack.enter_context(HistoryServer(LogFinder([path]), 1e6, listening, Settings(), 256))
        (cluster,) = server.clusters.all()
        while cluster.summary is None:
            time.sleep(0.01)
        build_s, build_cpu_s = time.perf_counter() - start, time.process_time() - cpu
        size = sum(file.stat().st_size for file in Path(cache).rglob("*") if file.is_file())
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def get(path_of_request: str) -> bytes:
            with urllib.request.urlopen(address + path_of_request, timeout=60) as answer:
                body: bytes = answer.read()
                return body

        def ask(view: str) -> tuple[float, float]:
            return timed(lambda: get(f"{view}?at={drawn.randrange(events)}"))

        def open_moment() -> None:
            with cluster.moments.read(str(drawn.randrange(events))):
                pass

        moments = [timed(open_moment) for _ in range(arguments.requests)]
        overviews = [ask("/v1/overview") for _ in range(arguments.requests)]
        jobs = [job["id"] for job in json.loads(get(f"/v1/jobs?at={events // 20}"))["jobs"]]
        details = [
            timed(lambda: get(f"/v1/jobs/{drawn.choice(jobs)}?at={drawn.randrange(events // 20, events)}"))
            for _ in range(arguments.requests)
        ]
        lists_s, _ = timed(lambda: get(f"/v1/jobs/overview?at={events - 7}"))
    figures = {
        f"{name}_p{rank}_{unit}": percentile([each[place] for each in durations], rank)
        for name, durations in (("moment", moments), ("overview", overviews), ("job", details))
        for place, unit in ((0, "s"), (1, "cpu_s"))
        for rank in (50, 99)
    } | {
        "jobs_overview_s": lists_s,
        "events_s": events_s,
        "build_s": build_s,
        "build_cpu_s": build_cpu_s,
        "fold_s": fold_s,
        "fold_cpu_s": fold_cpu_s,
        "index_mib": size / (1 << 20),
    }
    notes = {
        "overview_p99_s": "a request for a moment that is not kept; aim: below 1",
        "events_s": f"raw limit: {INTERVAL} events, read and folded",
        "jobs_overview_s": "the list of all jobs near the end of the log",
        "fold_s": "the log from its start, without an index",
        "build_s": "the same, leaving the index",
    }
    report("history_server", figures, conditions(events=events, requests=arguments.requests), notes)


if __name__ == "__main__":
    main()
