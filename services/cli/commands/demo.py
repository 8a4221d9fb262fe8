"""`tailrace demo`: starts a cluster, runs a job, checks its result, stops, and prints the log, in half a minute."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ....schemas.types import JobGraph
    from ...configuration import Configuration
    from ..demo import TextServer, Window
    from ..local import LocalCluster

_PROGRAM = "tailrace.pipelines.examples.window_word_count:main"
_ACCEPT_TIMEOUT_S = 30.0
_WINDOW_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 60.0
_TOP = 5


def demo(
    windows: Annotated[int, typer.Option(min=1, max=1000, help="Number of windows to wait for.")] = 2,
    window_seconds: Annotated[int, typer.Option(min=1, max=3600, help="The size of the windows.")] = 5,
    parallelism: Annotated[
        int,
        typer.Option(
            "--parallelism", "-p", min=1, max=4, help="Parallelism of all operators except the source."
        ),
    ] = 2,
    words_per_second: Annotated[int, typer.Option(min=1, help="Number of words sent per second.")] = 2000,
    home: Annotated[
        Path | None,
        typer.Option(help="Keep the cluster's data and logs here. \\[default: a temporary directory]"),
    ] = None,
) -> int:
    """Start a cluster, count words in windows, check the counts, shut down, and show the history from the log."""
    with _home(home) as place, _Screen() as screen:
        from ..demo import TextServer
        from ..local import LocalCluster

        configuration = _configuration(place)
        cluster = LocalCluster(configuration, progress=screen.step)
        server = TextServer(words_per_second)
        try:
            right = _Demo(cluster, server, screen).run(windows, window_seconds, parallelism)
        except BaseException:
            screen.step("stopping all processes")
            cluster.kill()
            raise
        finally:
            server.close()
        if home is not None:
            screen.step(f"data and logs are kept in {home}")
    return ExitCode.OK if right else ExitCode.DEMO_MISMATCH


class _Demo:
    def __init__(self, cluster: LocalCluster, server: TextServer, screen: _Screen) -> None:
        self._cluster = cluster
        self._server = server
        self._screen = screen

    def run(self, windows: int, window_seconds: int, parallelism: int) -> bool:
        begun = time.monotonic()
        screen = self._screen
        screen.title("Starting Kafka, a jobmanager, and two taskexecutors with two slots each")
        graph = self._start(window_seconds, parallelism)
        screen.title(
            f"WindowWordCount: parallelism {parallelism}, windows of {window_seconds} s, text from a socket"
        )
        right = self._count(graph, windows, window_seconds)
        screen.title("Shutting down")
        self._cluster.stop_processes("the demo is over")
        screen.title("The history, from the log: offset, time, sender -> recipient, type, cause, key fields")
        self._print_history()
        self._cluster.stop()
        screen.title(f"Done in {time.monotonic() - begun:.1f} s")
        return right

    def _start(self, window_seconds: int, parallelism: int) -> JobGraph:
        from concurrent.futures import ThreadPoolExecutor

        from ..local import LocalClusterOptions

        with ThreadPoolExecutor(1) as meanwhile:
            graph = meanwhile.submit(self._build, window_seconds, parallelism)
            self._cluster.start(LocalClusterOptions(taskexecutors=2, detached=False))
            return graph.result()

    def _build(self, window_seconds: int, parallelism: int) -> JobGraph:
        from ....pipelines.api.build import build

        arguments = ["--hostname", "127.0.0.1", "--port", str(self._server.port)]
        return build(_PROGRAM, [*arguments, "--window-seconds", str(window_seconds)], parallelism)

    def _count(self, graph: JobGraph, wanted: int, window_seconds: int) -> bool:
        from ...client import Client
        from ..demo.window_counts import check_counts

        configuration, screen = self._cluster.configuration, self._screen
        with Client(configuration, name="demo") as client, client.subscribe() as conversation:
            job_id = client.submit(graph)
            conversation.await_accepted(job_id, _ACCEPT_TIMEOUT_S)
            screen.step(f"job {job_id} is accepted")
            self._await_running(conversation, job_id)
            shown = self._watch(configuration, conversation, job_id, wanted, window_seconds)
            screen.step(f"{len(shown)} windows are complete: stopping the text source")
            self._server.close()
            ended = conversation.finished(job_id, _END_TIMEOUT_S)
            if ended is None:
                raise CommandFailure(
                    ExitCode.PROCESS_FAILED, f"job {job_id} did not end within {_END_TIMEOUT_S:g} s"
                )
            screen.step(f"job {job_id} is {ended.status.value}")
            verdict = check_counts(self._again(configuration, job_id), self._server.sent_words())
        screen.verdict(verdict.right, verdict.text)
        return verdict.right

    def _await_running(self, conversation: Any, job_id: str) -> None:
        from ....schemas.client import JobFinished, JobStatusChanged
        from ....schemas.event import Record
        from ....schemas.types import JobStatus

        begun = time.monotonic()

        def answer(record: Record) -> JobFinished | JobStatusChanged | None:
            match record.body:
                case JobFinished() as ended if ended.job_id == job_id:
                    return ended
                case JobStatusChanged(status=JobStatus.RUNNING) as running if running.job_id == job_id:
                    return running
                case _:
                    return None

        found = conversation.wait_for(answer, _ACCEPT_TIMEOUT_S)
        if found is None or isinstance(found, JobFinished):
            why = (
                "did not get its slots in time"
                if found is None
                else f"is {found.status.value}: {found.reason}"
            )
            raise CommandFailure(ExitCode.JOB, f"job {job_id} {why}")
        self._screen.step(f"its tasks are deployed ({time.monotonic() - begun:.2f} s)")

    def _watch(
        self, configuration: Configuration, conversation: Any, job_id: str, wanted: int, window_seconds: int
    ) -> list[Window]:
        """Prints windows as they close, until `wanted` windows closed. Raises CommandFailure if it takes too long."""
        import queue
        import threading

        from ....schemas.client import JobFinished
        from ...client import OutputRecord, read_output
        from ..demo import WindowCounts

        arrived: queue.SimpleQueue[OutputRecord] = queue.SimpleQueue()
        enough = threading.Event()

        def read() -> None:
            for record in read_output(configuration, job_id, over=enough.is_set):
                arrived.put(record)

        reading = threading.Thread(target=read, name="output", daemon=True)
        reading.start()
        tally = WindowCounts()
        shown: list[Window] = []
        deadline = time.monotonic() + _WINDOW_TIMEOUT_S + wanted * window_seconds
        try:
            while len(shown) < wanted:
                for record in conversation.poll(0.05):
                    if isinstance(record.body, JobFinished) and record.body.job_id == job_id:
                        raise CommandFailure(
                            ExitCode.JOB, f"job {job_id} is {record.body.status}: {record.body.reason}"
                        )
                while not arrived.empty():
                    tally.add(arrived.get(), time.time())
                for window in tally.closed_windows(time.time()):
                    self._screen.step(_describe_window(window, window_seconds))
                    shown.append(window)
                if time.monotonic() > deadline:
                    raise CommandFailure(
                        ExitCode.JOB, f"job {job_id}: only {len(shown)} of {wanted} windows closed in time"
                    )
        finally:
            enough.set()
            reading.join()
        return shown

    def _again(self, configuration: Configuration, job_id: str) -> list[Window]:
        """Returns the windows, from the job's complete output."""
        from ...client import read_output
        from ..demo import WindowCounts

        tally = WindowCounts()
        for record in read_output(configuration, job_id):
            tally.add(record, 0.0)
        return tally.windows()

    def _print_history(self) -> None:
        from ...history import HistoryProjection
        from ...history.entity_history import align_columns
        from ...log.factory import open_event_log

        log = open_event_log(self._cluster.configuration)
        for line in align_columns(HistoryProjection().read(log)):
            self._screen.line(line)
        log.close()


class _Screen:
    """Prints headings, steps and results: with colour and a spinner on a terminal, as plain lines elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=True)
        self._status: Any = None

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_status()

    def title(self, text: str) -> None:
        self._end_status()
        self._console.print(f"\n== {text}", style="bold", markup=False)
        if self._console.is_terminal:
            self._status = self._console.status("working ...")
            self._status.start()

    def step(self, text: str) -> None:
        self._console.print(f"   {text}", markup=False)

    def verdict(self, right: bool, text: str) -> None:
        self._console.print(f"   {text}", style="green" if right else "bold red", markup=False)

    def line(self, text: str) -> None:
        self._end_status()
        self._console.print(text, markup=False)

    def _end_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


@contextmanager
def _home(home: Path | None) -> Iterator[Path]:
    """Yields the given home, or a temporary one, which is kept only after an error."""
    if home is not None:
        yield home
        return
    place = Path(tempfile.mkdtemp(prefix="tailrace-demo-"))
    try:
        yield place
    except Exception:
        typer.echo(f"the logs of the processes are kept in {place}/log", err=True)
        raise
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)


def _configuration(home: Path) -> Configuration:
    from ..args.common_options import configuration

    # The empty address makes the demo start its own Kafka, also if the environment names another cluster.
    slots = {"the demo": ("taskmanager.numberOfTaskSlots", 2)}
    return configuration(home, "", "demo", more=slots)


def _describe_window(window: Window, seconds: int) -> str:
    begin, end = (datetime.fromtimestamp(ms / 1000) for ms in (window.end_ms - seconds * 1000, window.end_ms))
    top = ", ".join(f"{word} {count}" for word, count in window.counts.most_common(_TOP))
    return (
        f"window {begin:%H:%M:%S} to {end:%H:%M:%S}: {window.total:>6,} words, {len(window.counts):>5,} distinct; "
        f"most often: {top}"
    )
