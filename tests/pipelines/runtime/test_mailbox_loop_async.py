"""Asynchronous operators in a subtask at work: asyncio's own thread, the mailbox, and a slow HTTP server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from polling import TIMEOUT_S

from tailrace.infra import threads
from tailrace.pipelines.runtime.common.failures import UserCodeError
from tailrace.pipelines.runtime.stream_task.loop.mailbox import TaskCanceled
from tailrace.pipelines.testing.memory.cluster import run
from tailrace.schemas.types import JobGraph

from .test_mailbox_loop import Task, buffer, environment, start

__all__ = ["start"]
Start = Callable[[Task], Task]


class SlowServer:
    """Answers each request with its path: 20 ms later, or, if it holds them back, once it is released."""

    def __init__(self, *, holds: bool = False) -> None:
        self._loop = asyncio.new_event_loop()
        self._in_flight = self.most = 0
        self._released = asyncio.Event()
        self._holds = holds
        self.asked = threading.Semaphore(0)
        self.left = threading.Semaphore(0)
        """The clients that were gone before they had an answer."""
        self._server = self._loop.run_until_complete(asyncio.start_server(self._answer, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threads.Thread(target=self._loop.run_forever, name="slow server")
        self._thread.start()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        self.asked.release()
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        if self._holds:
            released = asyncio.ensure_future(self._released.wait())
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait((released, gone), return_when=asyncio.FIRST_COMPLETED)
            if not released.done():
                self.left.release()
            released.cancel()
            gone.cancel()
        else:
            await asyncio.sleep(0.02)
        self._in_flight -= 1
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + path)
        writer.close()

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._released.set)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


@pytest.fixture
def server() -> Iterator[SlowServer]:
    server = SlowServer()
    yield server
    server.close()


@pytest.fixture
def holding() -> Iterator[SlowServer]:
    server = SlowServer(holds=True)
    yield server
    server.close()


def client(port: int) -> Callable[[str], Awaitable[str]]:
    async def ask(value: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET /{value} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
        return answer.decode().rpartition("/")[2]

    return ask


def asking(function: Any, **options: Any) -> JobGraph:
    env = environment()
    env.from_collection(["unused"], str).rebalance().async_map(function, **options).print()
    return env.get_job_graph("asking")


def test_requests_to_slow_server_are_in_flight_together_up_to_capacity(
    start: Start, server: SlowServer
) -> None:
    task = start(Task(asking(client(server.port), capacity=20, output_type=str), 1))
    values = [str(number) for number in range(200)]
    task.hand_over(*(buffer(i, values[i * 10 : i * 10 + 10], ends=i == 19) for i in range(20)))
    task.ended()
    assert task.end is None
    assert task.texts() == values
    assert 2 <= server.most <= 20


def test_timeout_is_real_time_in_memory_if_function_has_socket(server: SlowServer) -> None:
    env = environment()
    values = [str(number) for number in range(30)]
    answers = env.from_collection(values, str).async_map(client(server.port), capacity=4, output_type=str)
    answers.print()
    assert run(env.get_job_graph("asking")).records == values


def test_full_operator_reads_nothing_and_commits_its_records(start: Start, holding: SlowServer) -> None:
    task = start(Task(asking(client(holding.port), capacity=1, output_type=str), 1))
    task.hand_over(buffer(0, ["a", "b"]), buffer(1, ["c"], ends=True))
    assert holding.asked.acquire(timeout=TIMEOUT_S)
    task.wait_until(lambda: bool(task.kafka.log(task.changelog(), 0)))
    assert task.subtask.records_in == 2
    assert not task.mailbox.is_empty
    holding.release()
    task.ended()
    assert (task.end, task.texts()) == (None, ["a", "b", "c"])


def test_cancellation_ends_task_and_its_requests(start: Start, holding: SlowServer) -> None:
    task = start(Task(asking(client(holding.port), output_type=str), 1))
    task.hand_over(buffer(0, ["a"], ends=True))
    assert holding.asked.acquire(timeout=TIMEOUT_S)
    task.stop()
    assert isinstance(task.end, TaskCanceled)
    assert holding.left.acquire(timeout=TIMEOUT_S)


def test_exception_of_function_ends_task(start: Start) -> None:
    async def fails(value: str) -> str:
        raise SystemExit(value)

    task = start(Task(asking(fails), 1))
    task.hand_over(buffer(0, ["a"]))
    task.ended()
    assert isinstance(task.end, UserCodeError)
    assert task.end.place == "record 'a'"
