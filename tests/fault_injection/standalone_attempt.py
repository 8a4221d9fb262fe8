"""Runs attempts of a StreamTask without Spark and TaskExecutor, which halt at a precise point: real Kafka, real
transactions, a process each.

Run as a program it is a server: it has all modules imported, and forks a process for each `Attempt` (a line of JSON)
that it receives. Commands are lines: `run ATTEMPT` prints the pid; `look PID` prints the outcome: how the process has
ended, that it is stopped, or nothing. A consumer hands over the content of a channel instead of Spark.

A *step* is an action of an attempt in its transactions: it begins one, sends a message (and waits for the broker), is
about to commit, has committed. An attempt that halts at step n signals itself after n - 1 steps.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from polling import TIMEOUT_S

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment, VertexDeployment

_TESTS = Path(__file__).parents[1]


class Attempt(msgspec.Struct, frozen=True):
    """The attempt to run, and the step at which it halts."""

    deployment: VertexDeployment
    vertices: tuple[str, ...]
    """The vertices whose subtask runs in the process."""
    subtask: int
    number: int
    bootstrap_servers: str
    notices: str
    """The file that is told of the steps that were done, and of the end: a line each."""
    halt_at: int | None = None
    signal: int = signal.SIGKILL


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a process; there is none while it runs."""

    exit_code: int | None = None
    killed_by: int | None = None
    stopped_by: int | None = None


class StandaloneAttempts:
    """The client of the server, for any thread. A context manager: at the end all processes are gone."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._started = itertools.count(1)
        self._pids: set[int] = set()
        self._asking = threading.Lock()
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
        )

    def __enter__(self) -> StandaloneAttempts:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self._pids:
            # Not waited for, and so still its own.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(TIMEOUT_S)
        self._server.stdout.close()

    def start(
        self,
        deployment: VertexDeployment,
        subtask: int,
        number: int,
        bootstrap_servers: str,
        *,
        halt_at: int | None = None,
        how: signal.Signals = signal.SIGKILL,
        vertices: Sequence[str] = (),
    ) -> RunningAttempt:
        """Starts a process that runs this attempt, or those of a slot, of these vertices."""
        notices = self._scratch / f"notices-{next(self._started)}"
        ids = tuple(vertices) or (deployment.vertex_id,)
        attempt = Attempt(deployment, ids, subtask, number, bootstrap_servers, str(notices), halt_at, how)
        pid = int(self._ask(b"run " + msgspec.json.encode(attempt)))
        self._pids.add(pid)
        return RunningAttempt(self, pid, notices)

    def wait(self, pid: int) -> Outcome:
        """Waits until the process ends or stops; raises after a timeout."""
        deadline = time.monotonic() + TIMEOUT_S
        outcome = Outcome()
        while outcome == Outcome() and time.monotonic() < deadline:
            outcome = msgspec.json.decode(self._ask(b"look %d" % pid), type=Outcome)
            time.sleep(0.01)
        if outcome.exit_code is not None or outcome.killed_by is not None:
            self._pids.discard(pid)
        return outcome

    def _ask(self, command: bytes) -> bytes:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        with self._asking:
            self._server.stdin.write(command + b"\n")
            self._server.stdin.flush()
            answer = self._server.stdout.readline()
        assert answer, "the server of lone attempts has ended"
        return answer


class RunningAttempt:
    """A process that runs or has run an attempt."""

    def __init__(self, lone: StandaloneAttempts, pid: int, notices: Path) -> None:
        self._lone = lone
        self._notices = notices
        self.pid = pid

    def wait(self) -> Outcome:
        """Waits until the process ends or stops."""
        return self._lone.wait(self.pid)

    def resume(self) -> None:
        """Sends SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def messages(self) -> list[str]:
        """Returns the completed steps, and the last notice."""
        return self._notices.read_text().splitlines() if self._notices.exists() else []


class HaltingProducer:
    """A Producer that counts and reports its steps."""

    def __init__(self, producer: Any, attempt: Attempt) -> None:
        self._producer = producer
        self._attempt = attempt
        self._steps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def begin_transaction(self) -> None:
        self._step("begin")
        self._producer.begin_transaction()

    def produce(self, topic: str, *arguments: Any, **more: Any) -> None:
        self._step(f"produce {topic}")
        self._producer.produce(topic, *arguments, **more)
        # Of a producer that has been fenced, flush() fails without an exception.
        with contextlib.suppress(SystemError):
            self._producer.flush(TIMEOUT_S)

    def commit_transaction(self, *arguments: Any) -> None:
        self._step("commit")
        self._producer.commit_transaction(*arguments)
        self._step("committed")

    def _step(self, what: str) -> None:
        self._steps += 1
        if self._steps == self._attempt.halt_at:
            os.kill(os.getpid(), self._attempt.signal)
        report(self._attempt, what)


def report(attempt: Attempt, what: str) -> None:
    with open(attempt.notices, "a") as notices:
        notices.write(what + "\n")


def run(attempt: Attempt) -> None:
    """Runs the attempt; never returns."""
    from tailrace.pipelines.runtime.common.protocol import (
        OpenTask,
        OpenTasks,
        StateRestored,
        TaskCanceledNotice,
        TaskFailed,
        TaskFinished,
        TaskNotice,
    )
    from tailrace.pipelines.runtime.stream_task.loop.mailbox import Mailbox
    from tailrace.pipelines.runtime.stream_task.loop.task_group import TaskGroup
    from tailrace.pipelines.runtime.stream_task.output import kafka_transaction

    mailbox = Mailbox()
    made = kafka_transaction.transactional_producer  # type: ignore[attr-defined]

    def transactional_producer(*arguments: Any) -> Any:
        return HaltingProducer(made(*arguments), attempt)

    kafka_transaction.transactional_producer = transactional_producer  # type: ignore[attr-defined]

    def notify(task: int, notice: TaskNotice) -> None:
        match notice:
            case StateRestored(_, positions):
                for index in range(len(opening.deployment(task).inputs)):
                    fed = (attempt, mailbox, opening.deployment(task), task, index, positions.get(index, {}))
                    threading.Thread(target=feed, args=fed, daemon=True).start()
            case TaskFailed(reason):
                report(attempt, f"Failed: {reason.splitlines()[0]}")
            case TaskCanceledNotice() | TaskFinished():
                report(attempt, type(notice).__name__)
            case _:
                pass

    deployment = attempt.deployment
    subtask = SubtaskDeployment("", attempt.subtask, attempt.number)
    opening = OpenTasks(
        deployment.cluster,
        deployment.job_id,
        deployment.job_graph,
        tuple(OpenTask(vertex_id, subtask) for vertex_id in attempt.vertices),
        KafkaConnection(attempt.bootstrap_servers),
    )
    TaskGroup(opening, mailbox, notify).invoke()
    os._exit(0)


def feed(
    attempt: Attempt,
    mailbox: Any,
    deployment: VertexDeployment,
    task: int,
    input_index: int,
    begin: Mapping[int, int],
) -> None:
    """Hands over the content of a channel from these offsets on."""
    from confluent_kafka import Consumer, TopicPartition

    from tailrace.pipelines.graph.physical_plan import channel_topic
    from tailrace.pipelines.runtime.common.protocol import BUFFER
    from tailrace.pipelines.runtime.stream_task.loop.mailbox import ForwardedMessage

    topic = channel_topic(deployment.cluster, deployment.job_id, deployment.inputs[input_index].data_set_id)
    consumer = Consumer(
        {
            "bootstrap.servers": attempt.bootstrap_servers,
            "group.id": "lone",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partition = attempt.subtask
    consumer.assign([TopicPartition(topic, partition, begin.get(partition, 0))])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            offset, value = message.offset(), message.value()
            letter = ForwardedMessage(BUFFER, input_index, 1, partition, offset, offset + 1, value)
            mailbox.put([(letter, len(value))], task)


def serve() -> None:
    """Serves commands until the input ends, and reaps child processes when they are waited for."""
    from tailrace.pipelines.runtime.common.preloaded_modules import preload
    from tailrace.pipelines.runtime.stream_task.loop import stream_task  # noqa: F401

    preload()
    for line in sys.stdin.buffer:
        command, _, rest = line.partition(b" ")
        if command == b"run":
            attempt = msgspec.json.decode(rest, type=Attempt)
            pid = os.fork()
            if pid == 0:
                try:
                    run(attempt)
                finally:
                    os._exit(70)
            print(pid, flush=True)
        else:
            print(msgspec.json.encode(_poll_outcome(int(rest))).decode(), flush=True)


def _poll_outcome(pid: int) -> Outcome:
    result, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    if not result:
        return Outcome()
    if os.WIFSTOPPED(status):
        return Outcome(stopped_by=os.WSTOPSIG(status))
    if os.WIFSIGNALED(status):
        return Outcome(killed_by=os.WTERMSIG(status))
    return Outcome(exit_code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve()
