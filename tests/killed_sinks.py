"""A transactional sink in processes that are killed (SIGKILL) at every step of their work."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from connectors import build_one, operator_config

from tailrace.pipelines.functions import TransactionalSink
from tailrace.pipelines.runtime.records.batch import Batch

_STEP = 5
"""Records of a commit of the task, and of a transaction of the sink."""


def write_with_kills(
    create: Callable[[Callable[[], None]], TransactionalSink[Any]], records: Sequence[Any], changelog: Path
) -> int:
    """Writes the records in one process after the other. Each is killed one step later than the one before, until one
    gets through. Returns the number of kills.

    `create` gets a function that it lets the sink call at steps of its own.
    """
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _work(create, records, changelog, kills)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return kills
        kills += 1


def _work(
    create: Callable[[Callable[[], None]], TransactionalSink[Any]],
    records: Sequence[Any],
    changelog: Path,
    steps: int,
) -> None:
    """Works like a task. The changelog has a line for each commit: the position and the changes of state."""
    left = steps

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    config = operator_config("transactional_sink", _Placeholder(), roll_records=_STEP, roll_ms=60_000)
    operator, _ = build_one(config)
    operator._sink = create(step)  # type: ignore[attr-defined]
    position = 0
    for line in changelog.read_text().splitlines() if changelog.exists() else ():
        position, messages = json.loads(line)
        for message in messages:
            operator.restore(bytes.fromhex(message))
    operator.open()

    def commit() -> None:
        operator.before_commit()
        changes = [message.hex() for message in operator.take_changes()]
        step()
        with changelog.open("a") as file:
            file.write(json.dumps([position, changes]) + "\n")
        step()
        operator.committed()
        step()

    while position < len(records):
        part = list(records[position : position + _STEP])
        operator.process(Batch([0] * len(part), part))
        position += len(part)
        commit()
    operator.finish()
    commit()
    operator.close()


class _Placeholder(TransactionalSink[Any]):
    """Is pickled in place of the sink, which calls the test."""

    def commit(self, transaction_id: str, records: Sequence[Any]) -> None:
        raise AssertionError
