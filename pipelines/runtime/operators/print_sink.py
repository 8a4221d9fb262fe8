"""print(): each record becomes one JSON message on the job's output topic, in the task's transaction.

A sink that collects adds the record as an object, for the program that executes the job.

The record's time is in the JSON. The message has the time of sending, because a broker may refuse the record's own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...graph.physical_plan import output_topic
from ...types import PICKLED
from ..records.batch import Batch
from .operator import Operator, OperatorSetup
from .user_functions import OrderedCalls, user_code


class PrintSinkOperator(Operator):
    """Writes the printed text, its subtask (counted from 1, as in Flink's print), and the record's time."""

    def __init__(self, setup: OperatorSetup) -> None:
        self._config = setup.config
        self._subtask = setup.context.subtask_index + 1
        self._identifier: str | None = setup.parameters.get("identifier")
        self._collects = bool(setup.parameters.get("collects"))
        self._send = setup.send
        self._topic = output_topic(setup.cluster, setup.job_id)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            texts = list(map(str, records))
        for timestamp, value, text in zip(batch.timestamps, batch.values, texts, strict=True):
            self._send(self._topic, self._message(timestamp, value, text), partition=0)

    def _message(self, timestamp: int, value: Any, text: str) -> bytes:
        printed: dict[str, Any] = {
            "subtask": self._subtask,
            "identifier": self._identifier,
            "timestamp": timestamp,
            "text": text,
        }
        if self._collects:
            printed["collected"] = PICKLED.dump([value])[0]
        try:
            return msgspec.json.encode({**printed, "record": value})
        except Exception:  # a user's class may refuse in its own way to be converted to JSON
            return msgspec.json.encode({**printed, "record": None})
