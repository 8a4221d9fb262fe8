"""Tumbling windows per key, reduced as records come in.

Records that arrive together are reduced by (window, key) among themselves before the state is touched;
the reduce function is therefore taken to be associative, and is called in the order of arrival. A window
[start, end) fires when the watermark passes end - 1, and gives one record per key with that timestamp.

A record whose window has fired already belongs to the window that is open at the watermark: processing
time has no late records, only later ones, and a total must not lose any.

The key selector and the reduce function are called once per record, in this order; what is emitted is in
the order in which a window first saw its keys.
"""

from __future__ import annotations

import json
from typing import Any

from ....schemas.types import OperatorConfig
from ...types import PICKLED, RecordType
from ..buffers import NO_WATERMARK, Batch, all_of
from .functions import load, user_code
from .operator import Operator
from .window_state import WindowState


class WindowReduce(Operator):
    """`key_by(...).window(TumblingProcessingTimeWindows).reduce(...)`."""

    def __init__(self, config: OperatorConfig, max_parallelism: int) -> None:
        parameters = json.loads(config.parameters)
        assigner = parameters["assigner"]
        if assigner != "tumbling_processing_time":
            raise ValueError(f"operator {config.name!r}: this runtime has no window assigner {assigner!r}")
        self._size = int(parameters["size_ms"])
        self._offset = int(parameters.get("offset_ms", 0))
        self._config = config
        self._key, self._reduce = load(config)
        self._watermark = NO_WATERMARK
        self.state = WindowState(
            _type(parameters.get("key_type")), _type(parameters.get("output_type")), max_parallelism
        )

    def process(self, batch: Batch) -> Batch:
        with user_code(self._config):
            for start, partial in self._partials(batch).items():
                accumulators = self.state.open_window(start)
                for key, value in partial.items():
                    if key in accumulators:
                        accumulators[key] = self._reduce(accumulators[key], value)
                    else:
                        accumulators[key] = value
                self.state.touch(start, partial)
        return Batch([], [])

    def _partials(self, batch: Batch) -> dict[int, dict[Any, Any]]:
        """The batch reduced by window and key."""
        select, reduce = self._key, self._reduce
        partials: dict[int, dict[Any, Any]] = {}
        within = -1, -1  # most records are in the window of the one before
        partial: dict[Any, Any] = {}
        for timestamp, value in zip(batch.timestamps, batch.values, strict=True):
            if not within[0] <= timestamp < within[1]:
                start = self.window_of(timestamp)
                within = start, start + self._size
                partial = partials.setdefault(start, {})
            key = select(value)
            if key in partial:
                partial[key] = reduce(partial[key], value)
            else:
                partial[key] = value
        return partials

    def window_of(self, timestamp: int) -> int:
        """The start of the window that a record with this timestamp goes to."""
        at = max(timestamp, self._watermark + 1)
        return at - (at - self._offset) % self._size

    def advance(self, watermark: int) -> Batch:
        if watermark <= self._watermark:
            return Batch([], [])
        self._watermark = watermark
        due = sorted(start for start in self.state.windows() if start + self._size - 1 <= watermark)
        fired = []
        for start in due:
            values = list(self.state.drop_window(start).values())
            fired.append(Batch([start + self._size - 1] * len(values), values))
        return all_of(fired)


def _type(form: Any) -> RecordType:
    return PICKLED if form is None else RecordType.from_json(form)
