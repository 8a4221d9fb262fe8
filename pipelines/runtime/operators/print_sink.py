"""print(): each record becomes one JSON message on the job's output topic, in the task's transaction."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from ....schemas.types import OperatorConfig
from ..buffers import Batch
from .functions import user_code
from .operator import Operator

Emit = Callable[[bytes, int], None]
"""Takes a message and its timestamp (ms)."""


class PrintSink(Operator):
    """Says what was printed, by which subtask (counted from 1, as Flink's print does), and when."""

    def __init__(self, config: OperatorConfig, subtask_index: int, emit: Emit) -> None:
        self._config = config
        self._subtask = subtask_index + 1
        self._identifier: str | None = json.loads(config.parameters or "{}").get("identifier")
        self._emit = emit

    def process(self, batch: Batch) -> Batch:
        for timestamp, value in zip(batch.timestamps, batch.values, strict=True):
            self._emit(self._message(value), timestamp)
        return Batch([], [])

    def _message(self, value: Any) -> bytes:
        with user_code(self._config):
            text = str(value)
        said = {"subtask": self._subtask, "identifier": self._identifier, "text": text}
        try:
            return msgspec.json.encode({**said, "record": value})
        except Exception:  # what JSON cannot hold, a user's class may refuse in its own way
            return msgspec.json.encode({**said, "record": None})
