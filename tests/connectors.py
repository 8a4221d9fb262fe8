"""Shared by tests of sources and sinks: configurations, attempts that crash, and realistic data."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import cloudpickle

from tailrace.pipelines.runtime.operators.factory import build_operator
from tailrace.pipelines.runtime.operators.operator import Operator, OperatorSetup
from tailrace.pipelines.runtime.operators.task_context import TaskContext
from tailrace.pipelines.runtime.records.batch import Batch
from tailrace.pipelines.runtime.stream_task.input.sources.build import build_source
from tailrace.pipelines.runtime.stream_task.input.sources.source import Source, SourceSetup
from tailrace.pipelines.types import RecordType
from tailrace.schemas.types import OperatorConfig

Step = int | Literal["commit", "crash"]
"""A poll with this limit, a commit, or the end of an attempt, whose uncommitted records do not count."""


def operator_config(
    kind: str, *functions: Any, output_type: object = None, **parameters: Any
) -> OperatorConfig:
    """Returns the configuration of an operator as the API creates it."""
    if output_type is not None:
        parameters["output_type"] = RecordType.of(output_type).to_json()
    return OperatorConfig(
        operator_id=kind, name=kind, kind=kind, parameters=json.dumps(parameters),
        code=cloudpickle.dumps(functions) if functions else b"", location="program.py:3",
    )  # fmt: skip


class Clock:
    """A clock in milliseconds that a test advances."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def open_source(
    config: OperatorConfig,
    changelog: Iterable[bytes] = (),
    *,
    subtask: int = 0,
    parallelism: int = 1,
    clock: Callable[[], int] | None = None,
    wake: Callable[[], None] = lambda: None,
) -> Source:
    """Opens a source for one attempt of one subtask, as its task does."""
    source = build_source(config)
    for message in changelog:
        source.restore(message)
    context = TaskContext(subtask_index=subtask, parallelism=parallelism)
    source.open(SourceSetup(config, context, clock or Clock(), wake))
    return source


def committed_records(
    config: OperatorConfig,
    steps: Iterable[Step] = (),
    *,
    subtask: int = 0,
    parallelism: int = 1,
    last_limit: int = 100,
) -> list[Any]:
    """Returns the records in the committed transactions of one subtask: after these steps, and after a last attempt
    that reads to the end."""
    committed: list[Any] = []
    pending: list[Any] = []
    changelog: list[bytes] = []
    ended = False

    def attempt() -> Source:
        return open_source(config, changelog, subtask=subtask, parallelism=parallelism)

    def commit(source: Source) -> None:
        changelog.extend(source.take_changes())
        committed.extend(pending)
        pending.clear()

    source = attempt()
    try:
        for step in [*steps, "crash", last_limit]:
            match step:
                case "commit":
                    commit(source)
                case "crash":
                    source.close()
                    pending.clear()
                    source, ended = attempt(), False
                case limit:
                    if not ended:
                        ended = _poll(source, limit, pending)
        while not ended:
            ended = _poll(source, last_limit, pending)
        commit(source)
    finally:
        source.close()
    return committed


def _poll(source: Source, limit: int, into: list[Any]) -> bool:
    polled = source.poll(limit)
    if polled.batch is not None:
        assert 0 < len(polled.batch) <= limit
        into += polled.batch.values
    return polled.has_ended


def web_server_log(lines: int, seed: int = 1, start_ms: int = 1_700_000_000_000) -> Iterator[str]:
    """Returns lines in the Combined Log Format, of about a hundred clients, milliseconds to seconds apart."""
    draw = random.Random(seed)
    at = start_ms
    for _ in range(lines):
        at += int(draw.expovariate(1 / 200))
        client = f"10.0.{draw.randrange(4)}.{draw.randrange(64)}"
        path = draw.choice(("/", "/cart", "/login", "/product/7", "/product/12", "/search?q=shoe"))
        status = draw.choices((200, 302, 404, 500), (90, 5, 4, 1))[0]
        yield f'{client} - - [{at}] "GET {path} HTTP/1.1" {status} {draw.randrange(200, 20_000)} "-" "curl/8.5"'


class CollectedRecords:
    """Collects the output of an operator as a list: ("records", batch), ("watermark", ms), ("idle", is_idle)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def emit(self, batch: Batch) -> None:
        self.events.append(("records", batch))

    def emit_side(self, tag: str, batch: Batch) -> None:
        self.events.append((tag, batch))

    def emit_watermark(self, watermark: int) -> None:
        self.events.append(("watermark", watermark))

    def emit_idle(self, idle: bool) -> None:
        self.events.append(("idle", idle))

    def of_kind(self, kind: str) -> list[Any]:
        """Returns the output of one kind."""
        return [what for item, what in self.events if item == kind]


def build_one(
    config: OperatorConfig,
    *,
    input_type: object = None,
    clock: Callable[[], int] | None = None,
    subtask: int = 0,
    parallelism: int = 1,
    attempt: int = 0,
    job_id: str = "1" * 32,
    generation: int = 0,
) -> tuple[Operator, CollectedRecords]:
    """Returns an operator that is not open yet, and its output."""
    context = TaskContext(
        job_id=job_id, subtask_index=subtask, parallelism=parallelism, attempt_number=attempt
    )
    record_type = RecordType.of(input_type)
    setup = OperatorSetup(
        config, context, "test", job_id, _no_send, (record_type,),
        wall_clock=clock or Clock(), generation=generation,
    )  # fmt: skip
    operator = build_operator(setup)
    operator.output = output = CollectedRecords()
    return operator, output


def _no_send(topic: str, value: bytes | None, **_: Any) -> None:
    raise AssertionError(f"sent to {topic}")
