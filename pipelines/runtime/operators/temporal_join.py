"""temporal_join: each left record with the version of the right row that is valid at its timestamp.

That is the latest version of its key that is not later. A left record waits until the watermark reaches its timestamp:
then no version before it can follow. Of the versions up to the watermark only the last one of each key is still needed.

Records and versions that the watermark has not reached wait in buckets of event time, as those of interval_join: when
it passes a bucket, the bucket is joined and dropped as a whole. This needs no timer for each record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Final

from ...functions.joins import JoinFunction
from ...functions.window import LATE_RECORDS_DROPPED
from ...types import RecordType, Scalar, TupleOf
from ..common.failures import format_key
from ..records.batch import Batch
from ..records.buffers import MAX_WATERMARK
from ..records.record_copying import create_copier
from ..state_backend.keyed_state_backend import KeyedStateBackend
from .keyed import KeyedFunctionOperator, KeySelector
from .operator import OperatorSetup
from .output_collector import OutputCollector
from .user_functions import OrderedCalls, load, user_code

BUCKET_MS: Final = 100

Record = tuple[int, Any]
"""Timestamp and value."""
_TIME: Final = itemgetter(0)


class TemporalJoinOperator(KeyedFunctionOperator):
    """Runs a JoinFunction, or a callable, for each left record; for one without a version if the join is outer."""

    def __init__(self, setup: OperatorSetup) -> None:
        super().__init__(setup)
        first, second, self._function = load(setup.config)
        left, right = setup.input_types
        self._keys = KeySelector(first, left, None), KeySelector(second, right, None)
        self._is_outer: bool = setup.parameters["is_outer"]
        self._late_tag: str | None = setup.parameters.get("late_tag")
        self._left = _Waiting(self.backend, "~left", left)
        self._right = _Waiting(self.backend, "~right", right)
        self._valid = self.backend.value_table("~valid", TupleOf((Scalar("int"), right)))
        self._copy_version = create_copier(right)
        self._call: Callable[[Any, Any], Any] = (
            self._function.join if isinstance(self._function, JoinFunction) else self._function
        )
        self._gathering = OutputCollector()
        self._time = 0

    def process(self, batch: Batch, input_index: int = 0) -> None:
        waiting = (self._left, self._right)[input_index]
        records = OrderedCalls(batch)
        with user_code(self._config, records):
            keys = self._keys[input_index].select(records)
            for key, time, value in zip(keys, batch.timestamps, records, strict=True):
                if time > self.backend.watermark_for(key):
                    waiting.add(key, time, value)
                elif input_index == 0:
                    self._take_late(time, value)
                else:
                    self._put_valid(key, (time, value))
        self._gathering.send(self.output)

    def advance_watermark(self, watermark: int) -> None:
        if watermark > self.backend.watermark:
            self.backend.watermark = watermark
            self._join_until(watermark)
        super().advance_watermark(watermark)

    def finish(self) -> None:
        # Records after the last watermark.
        self._join_until(MAX_WATERMARK)

    def _join_until(self, watermark: int) -> None:
        """Joins the left records that the watermark has reached, bucket by bucket."""
        left, right = self._left, self._right
        for bucket in sorted(left.due(watermark) | right.due(watermark)):
            versions = dict(right.take(bucket, watermark))
            with user_code(self._config, place=self._place):
                for key, records in left.take(bucket, watermark):
                    self._join(key, records, versions.get(key, []))
            for key, of_key in versions.items():
                self._put_valid(key, of_key[-1])
            if self._gathering.has_many:
                self._gathering.send(self.output)
        self._gathering.send(self.output)

    def _join(self, key: Any, records: list[Record], versions: list[Record]) -> None:
        """Calls the function for the records of a key in a bucket."""
        backend, valid = self.backend, self._valid.space().get(key)
        later = 0
        for time, value in records:
            while later < len(versions) and versions[later][0] <= time:
                valid = _latest(valid, versions[later])
                later += 1
            if valid is None and not self._is_outer:
                continue
            backend.current_key, self._time = key, time
            backend.access_time = None
            row = None if valid is None else self._own_version(valid[1])
            self._gathering.add(time, (self._call(value, row),))

    def _own_version(self, row: Any) -> Any:
        """Returns a row that the function may change."""
        return row if self._copy_version is None else self._copy_version(row)

    def _put_valid(self, key: Any, version: Record) -> None:
        """Keeps a version that the watermark has reached, unless there is a later one."""
        held: Record | None = self._valid.space().get(key)
        if _latest(held, version) is version:
            self._valid.put(key, version)

    def _take_late(self, time: int, value: Any) -> None:
        if self._late_tag is None:
            self._setup.context.accumulator(LATE_RECORDS_DROPPED).inc()
        else:
            self._gathering.add_side(self._late_tag, time, value)

    def _place(self) -> str:
        return f"the record with timestamp {self._time}, key {format_key(self.backend.current_key)}"


def _latest(held: Record | None, version: Record) -> Record:
    """Returns the version that is valid after both; of two with one timestamp the one that came last."""
    return version if held is None or version[0] >= held[0] else held


class _Waiting:
    """The records of one input that the watermark has not reached. The namespace of a bucket is its start."""

    def __init__(self, backend: KeyedStateBackend, name: str, of: RecordType) -> None:
        self._table = backend.list_table(name, TupleOf((Scalar("int"), of)), namespaced=True)

    def add(self, key: Any, time: int, value: Any) -> None:
        """Adds a record."""
        self._table.extend(key, ((time, value),), time - time % BUCKET_MS)

    def due(self, watermark: int) -> set[int]:
        """Returns the buckets that may have records up to the watermark."""
        return {bucket for bucket in self._table.spaces() if bucket <= watermark}

    def take(self, bucket: int, watermark: int) -> Iterator[tuple[Any, list[Record]]]:
        """Removes and yields the records of each key up to the watermark, in the order of time."""
        entries = list(self._table.space(bucket).items())
        if bucket + BUCKET_MS - 1 <= watermark:
            for key, records in entries:
                yield key, sorted(records, key=_TIME)
            if bucket in self._table.spaces():
                self._table.drop(bucket)
            return
        for key, records in entries:
            reached = [record for record in records if record[0] <= watermark]
            if reached:
                yield key, sorted(reached, key=_TIME)
                self._table.replace(key, [record for record in records if record[0] > watermark], bucket)
