"""HttpSink: batches, retries, refusals and secrets, with a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tailrace.infra import threads
from tailrace.pipelines.api import HttpSink, ProgramError, StreamExecutionEnvironment
from tailrace.pipelines.runtime.common.failures import UserCodeError, describe_failure
from tailrace.pipelines.testing.memory.cluster import run


class Hit(NamedTuple):
    number: int


class Server(ThreadingHTTPServer):
    """Answers with the given statuses first, then with 200."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hits"
        self.lock = threading.Lock()
        self.statuses: list[int] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        """Headers and bodies of all requests."""
        self.accepted: list[Any] = []
        """The records of those that have succeeded."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            status = self.server.statuses.pop(0) if self.server.statuses else 200
            self.server.requests.append((dict(self.headers), body))
            if status == 200:
                self.server.accepted += json.loads(body)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threads.Thread(target=server.serve_forever, args=(0.01,), name="http server")
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def send(server: Server, count: int, *, seed: int | None = None, **options: Any) -> None:
    env = StreamExecutionEnvironment().set_parallelism(1)
    sink = HttpSink(server.url, **options)
    env.from_collection([Hit(i) for i in range(count)], Hit).sink_to(sink)
    run(env.get_job_graph("hits"), seed=seed, crashes=0 if seed is None else 3)


def numbers(server: Server) -> list[int]:
    return sorted(hit["number"] for hit in server.accepted)


def test_records_are_sent_in_batches_with_headers(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Bearer abc\nanother line")
    send(
        server,
        7,
        batch_size=3,
        requests=1,
        headers={"X-Source": "hits"},
        header_files={"Authorization": str(tmp_path / "token")},
        method="PUT",
    )
    assert numbers(server) == list(range(7))
    assert sorted(len(json.loads(body)) for _, body in server.requests) == [1, 3, 3]
    for headers, _ in server.requests:
        assert headers["Authorization"] == "Bearer abc"
        assert headers["X-Source"] == "hits"
        assert headers["Content-Type"] == "application/json"


def test_body_is_that_of_function(server: Server) -> None:
    send(server, 2, batch_size=2, body=lambda hits: json.dumps([hit.number for hit in hits]).encode())
    assert [body for _, body in server.requests] == [b"[0, 1]"]


def test_transient_failure_is_repeated(server: Server) -> None:
    server.statuses += [503, 429]
    send(server, 4, batch_size=2, requests=1)
    assert numbers(server) == list(range(4))
    assert len(server.requests) >= 4


def test_other_failure_fails_job_with_line_without_query(server: Server) -> None:
    server.statuses += [400]
    server.url += "?page=7"
    with pytest.raises(UserCodeError) as failure:
        send(server, 1)
    line = describe_failure(failure.value).splitlines()[0]
    assert line.startswith(f"HttpStatusError: POST {server.url.partition('?')[0]} answers 400 Bad Request")
    assert len(server.requests) == 1


def test_redirect_is_failure(server: Server) -> None:
    server.statuses += [302]
    with pytest.raises(UserCodeError):
        send(server, 1)
    assert len(server.requests) == 1


def test_server_that_is_gone_fails_job_after_last_attempt(server: Server) -> None:
    server.statuses += [503] * 99
    with pytest.raises(UserCodeError):
        send(server, 1)
    assert len(server.requests) == 10


@pytest.mark.parametrize("seed", range(3))
def test_each_record_is_sent_at_least_once_through_crashes(server: Server, seed: int) -> None:
    send(server, 30, seed=seed, batch_size=4, requests=2)
    assert sorted(set(numbers(server))) == list(range(30))


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("ftp://a/b", {}, "not http"),
        ("https://user:password@a/b", {}, "its URL has a secret"),
        ("https://a/b?api_key=abc", {}, "its URL has a secret"),
        ("https://a/b", {"headers": {"Authorization": "Bearer abc"}}, "the header Authorization is a secret"),
        ("https://a/b", {"headers": {"X-Api-Key": "abc"}}, "the header X-Api-Key is a secret"),
        ("https://a/b", {"headers": {"a b": "c"}}, "cannot be the name of a header"),
        ("https://a/b", {"method": "GET"}, "the method is 'GET'"),
        ("https://a/b", {"batch_size": 0}, "batch_size is 0"),
        ("https://a/b", {"timeout": timedelta(0)}, "the timeout is 0 ms"),
    ],
)
def test_wrong_arguments_are_refused(url: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ProgramError, match=reason) as refused:
        HttpSink(url, **options)
    assert "abc" not in str(refused.value)
