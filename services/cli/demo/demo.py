"""Runs the example WindowWordCount on a new cluster, and compares its counts with the text that was sent."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from rich.console import Console

from ....pipelines.api.build import build
from ....schemas.body import Body
from ....schemas.client import JobFinished, JobStatusChanged
from ....schemas.types import JobGraph, JobStatus
from ...client import Client, read_output
from ...configuration.options.kafka import KafkaUser
from ...history import HistoryProjection
from ...history.event_formatting import align_columns
from ...log.factory import open_event_log
from ...processes.rest import ENDPOINT as REST_ENDPOINT
from ..args.common_options import ClusterOptions
from ..exit_codes import CommandFailure, ExitCode
from ..local.cluster import LocalCluster, LocalClusterOptions
from .text_server import TextServer
from .word_check import check_counts

_PROGRAM = "tailrace.pipelines.examples.window_word_count:main"
_ACCEPT_TIMEOUT_S = 30.0
_WINDOW_TIMEOUT_S = 60.0
_QUIET_S = 0.7
"""A window has closed when its end and the last words are this long ago."""


def run_demo(
    home: Path | None,
    windows: int,
    window_seconds: int,
    parallelism: int,
    words_per_second: int,
    bootstrap_servers: str = "",
) -> bool:
    """Returns whether the counts are right. A temporary home is kept only after an error. Without `bootstrap_servers`
    the demo starts a Kafka. Raises CommandFailure."""
    place = home or Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
    is_kept = home is not None
    try:
        with TextServer(words_per_second) as server:
            demo = _Demo(place, server, windows, window_seconds, bootstrap_servers)
            return demo.run(parallelism, is_kept=is_kept)
    except Exception:
        if not is_kept:
            print(f"the logs of the processes are kept in {place}/log", file=sys.stderr)
        is_kept = True
        raise
    finally:
        if not is_kept:
            shutil.rmtree(place, ignore_errors=True)


class _Demo:
    def __init__(
        self, home: Path, server: TextServer, windows: int, window_seconds: int, bootstrap_servers: str
    ) -> None:
        # The empty address makes the demo start its own Kafka, also if the environment names another cluster.
        slots = {"the demo": ("taskmanager.numberOfTaskSlots", 2)}
        configuration = ClusterOptions(home, bootstrap_servers, "demo").configuration(more=slots)
        self._console = Console(highlight=False, soft_wrap=True)
        self._cluster = LocalCluster(configuration.as_user(KafkaUser.JOBMANAGER), progress=self._step)
        self._server = server
        self._wanted = windows
        self._window_s = window_seconds
        self._windows: defaultdict[int, Counter[str]] = defaultdict(Counter)
        """The end of a window, in milliseconds since the epoch -> its words."""
        self._last_arrival = 0.0
        self._shown = 0

    def run(self, parallelism: int, *, is_kept: bool) -> bool:
        """Starts a cluster, runs the job, stops the cluster, and prints the log."""
        start, cluster = time.monotonic(), self._cluster
        try:
            self._title("Starting Kafka, a jobmanager, and two taskexecutors with two slots each")
            with ThreadPoolExecutor(1) as meanwhile:
                arguments = (
                    f"--hostname 127.0.0.1 --port {self._server.port} --window-seconds {self._window_s}"
                )
                graph = meanwhile.submit(build, _PROGRAM, arguments.split(), parallelism)
                cluster.start(LocalClusterOptions(taskexecutors=2, detached=False))
            self._title(
                f"WindowWordCount: parallelism {parallelism}, windows of {self._window_s} s, text from a socket"
            )
            is_right = self._count(graph.result())
            self._title("Shutting down")
            cluster.stop_processes("the demo is over")
            self._title(
                "The history, from the log: offset, time, sender -> recipient, type, cause, key fields"
            )
            log = open_event_log(cluster.configuration)
            for line in align_columns(HistoryProjection().read(log)):
                self._console.print(line, markup=False)
            log.close()
            cluster.stop()
        except BaseException:
            self._step("stopping all processes")
            cluster.kill()
            raise
        self._title(f"Done in {time.monotonic() - start:.1f} s")
        if is_kept:
            self._step(f"data and logs are kept in {cluster.home}")
        return is_right

    def _count(self, graph: JobGraph) -> bool:
        """Runs the job until the wanted windows have closed; returns whether it counted what was sent."""
        configuration = self._cluster.configuration.as_user(KafkaUser.COMMAND)
        with Client(configuration, name="demo") as client, client.subscribe() as conversation:
            job_id = client.submit(graph)
            conversation.accepted_at(job_id, _ACCEPT_TIMEOUT_S)
            self._step(f"job {job_id} is accepted")
            if (rest := conversation.endpoints.get(REST_ENDPOINT)) is not None:
                self._step(f"the web page and the REST API are at http://{rest}/")
            start = time.monotonic()

            def is_over() -> bool:
                """Shows what is new. The text ends after the wanted windows, and the job ends with it."""
                ended = [self._show(record.body, start) for record in conversation.poll(0)]
                self._show_windows()
                if time.monotonic() > start + _WINDOW_TIMEOUT_S + self._wanted * self._window_s:
                    raise CommandFailure(
                        ExitCode.JOB,
                        f"job {job_id}: only {self._shown} of {self._wanted} windows closed in time",
                    )
                return any(ended)

            for record in read_output(configuration, job_id, over=is_over):
                # The timestamp of a record is the end of its window, less 1 ms.
                self._windows[record.timestamp + 1][record.record["word"]] += record.record["count"]
                self._last_arrival = time.time()
        counted = sum(self._windows.values(), Counter())
        is_right, line = check_counts(counted, self._server.sent_words())
        self._step(line, "green" if is_right else "bold red")
        return is_right

    def _show(self, body: Body, start: float) -> bool:
        """Shows an event of the job; returns whether the job has finished. Raises CommandFailure if it failed."""
        if isinstance(body, JobStatusChanged) and body.status is JobStatus.RUNNING:
            self._step(f"its tasks are deployed ({time.monotonic() - start:.2f} s)")
        if not isinstance(body, JobFinished):
            return False
        if body.status is not JobStatus.FINISHED:
            raise CommandFailure(ExitCode.JOB, f"job {body.job_id} is {body.status.value}: {body.reason}")
        self._step(f"job {body.job_id} is FINISHED")
        return True

    def _show_windows(self) -> None:
        """Shows the windows that have closed; the last wanted one ends the text."""
        now = time.time()
        if self._shown >= self._wanted or now < self._last_arrival + _QUIET_S:
            return
        for end_ms in sorted(self._windows)[self._shown :]:
            end_s, words = end_ms / 1000, self._windows[end_ms]
            if end_s + _QUIET_S < now:
                begin, end = (
                    f"{datetime.fromtimestamp(at):%H:%M:%S}" for at in (end_s - self._window_s, end_s)
                )
                top = ", ".join(f"{word} {count}" for word, count in words.most_common(5))
                self._step(
                    f"window {begin} to {end}: {words.total():>6,} words, {len(words):>5,} distinct; most often: {top}"
                )
                self._shown += 1
        if self._shown >= self._wanted:
            self._step(f"{self._shown} windows are complete: stopping the text source")
            self._server.close()

    def _title(self, text: str) -> None:
        self._console.print(f"\n== {text}", style="bold", markup=False)

    def _step(self, text: str, style: str = "") -> None:
        self._console.print(f"   {text}", style=style, markup=False)
