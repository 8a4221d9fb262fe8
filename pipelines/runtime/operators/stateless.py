"""map, flat_map and filter: a user's function on each record; results keep the record's timestamp."""

from __future__ import annotations

from ....schemas.types import OperatorConfig
from ..buffers import Batch
from .functions import close_function, load, open_function, user_code
from .operator import Operator


class _WithFunction(Operator):
    def __init__(self, config: OperatorConfig) -> None:
        self._config = config
        (self._function,) = load(config)

    def open(self) -> None:
        with user_code(self._config):
            open_function(self._function)

    def close(self) -> None:
        with user_code(self._config):
            close_function(self._function)


class Map(_WithFunction):
    """One record for each record."""

    def process(self, batch: Batch) -> Batch:
        with user_code(self._config):
            return Batch(batch.timestamps, list(map(self._function, batch.values)))


class FlatMap(_WithFunction):
    """Any number of records for each record: the items of what the function returns or yields."""

    def process(self, batch: Batch) -> Batch:
        timestamps: list[int] = []
        values: list[object] = []
        with user_code(self._config):
            for timestamp, value in zip(batch.timestamps, batch.values, strict=True):
                before = len(values)
                values.extend(self._function(value))
                timestamps.extend([timestamp] * (len(values) - before))
        return Batch(timestamps, values)


class Filter(_WithFunction):
    """The records for which the function returns something true."""

    def process(self, batch: Batch) -> Batch:
        with user_code(self._config):
            kept = [i for i, value in enumerate(batch.values) if self._function(value)]
        return Batch([batch.timestamps[i] for i in kept], [batch.values[i] for i in kept])
