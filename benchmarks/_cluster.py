"""A cluster as `tailrace cluster start` makes it (one jobmanager, one TaskExecutor of four slots), and text for its
jobs."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.pipelines.api.build import build
from tailrace.schemas.types import JobGraph
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.configuration import Configuration

TASK_EXECUTORS = 1
SLOTS = 4


@contextmanager
def running_cluster(slots: int = SLOTS) -> Iterator[LocalCluster]:
    """Yields a cluster that is started and registered; stops it at the end."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        values = {"home": home, "cluster.id": "bench", "taskmanager.numberOfTaskSlots": str(slots)}
        cluster = LocalCluster(Configuration(values))
        try:
            cluster.start(LocalClusterOptions(taskexecutors=TASK_EXECUTORS, detached=False))
            yield cluster
            cluster.stop("the benchmark is over")
        finally:
            cluster.kill()


class TextServer:
    """Sends the same line to each connection, about a hundred times a second, until closed."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._closed = threading.Event()
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Closes all connections."""
        self._closed.set()
        self._server.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while not self._closed.wait(0.01):
                try:
                    connection.sendall(b"to be or not to be that is the question\n")
                except OSError:
                    return


def word_count(port: int, parallelism: int) -> JobGraph:
    """Returns WindowWordCount, reading from the port: one vertex at parallelism 1, else three."""
    entry_point = "tailrace.pipelines.examples.window_word_count:main"
    arguments = ["--hostname", "127.0.0.1", "--port", str(port)]
    return build(entry_point, arguments, parallelism)
