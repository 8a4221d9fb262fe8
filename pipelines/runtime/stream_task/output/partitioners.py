"""Partitioners: they assign the records of a batch to the partitions of a channel.

A partitioner takes a batch and returns (partition, its records), in the order of the batch. If the key is a column, or
no key is needed, columns stay columns.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .....schemas.types import JobEdge, Partitioner
from ....graph.key_groups import subtask_of
from ....types import PICKLED, RecordType
from ...common.failures import UserCodeError
from ...operators.user_functions import OrderedCalls, load_code
from ...records.batch import Batch

Parts = Iterator[tuple[int, Batch]]
Partition = Callable[[Batch], Parts]

_FEW: Final = 64
"""The number of records below which a loop over rows costs less than calls into Arrow."""
_REMEMBERED: Final = 100_000
"""The number of keys whose partition is cached."""


def create_partitioner(
    edge: JobEdge,
    record_type: RecordType,
    *,
    reachable: range,
    partitions: int,
    max_parallelism: int,
    subtask: int,
) -> Partition:
    """Creates the partitioner of an edge for one sending subtask.

    `reachable`: the partitions that it may write to, of `partitions` in all. `max_parallelism`: of the receiving
    vertex. Raises UserCodeError if the edge's functions cannot be loaded.
    """
    match edge.partitioner:
        case Partitioner.HASH if partitions == 1:
            return _Single(0)
        case Partitioner.FORWARD | Partitioner.GLOBAL:
            return _Single(reachable[0])
        case Partitioner.REBALANCE | Partitioner.RESCALE:
            return _RoundRobin(reachable, subtask)
        case Partitioner.SHUFFLE:
            return _Shuffle(reachable, record_type, seed=subtask)
        case Partitioner.BROADCAST:
            return _Broadcast(reachable)
        case Partitioner.HASH:
            (select,) = _functions(edge)
            parameters = json.loads(edge.parameters or "{}")
            form = parameters.get("key_type")
            return _Hash(
                select,
                parameters.get("key_field"),
                PICKLED if form is None else RecordType.from_json(form),
                record_type,
                lambda key: subtask_of(key, max_parallelism, partitions),
            )
        case Partitioner.CUSTOM:
            partitioner, select = _functions(edge)
            return _Custom(partitioner, select, partitions, record_type)


class _Single:
    def __init__(self, partition: int) -> None:
        self._partition = partition

    def __call__(self, batch: Batch) -> Parts:
        yield self._partition, batch


class _Broadcast:
    def __init__(self, partitions: range) -> None:
        self._partitions = partitions

    def __call__(self, batch: Batch) -> Parts:
        for partition in self._partitions:
            yield partition, batch


class _RoundRobin:
    """Sends a run of the batch to each partition in turn. Over time all get the same number of records, plus or
    minus one."""

    def __init__(self, partitions: range, first: int) -> None:
        self._partitions = partitions
        self._next = first % len(partitions)

    def __call__(self, batch: Batch) -> Parts:
        count = len(self._partitions)
        each, more = divmod(len(batch), count)
        start = 0
        for i in range(count):
            stop = start + each + (i < more)
            if stop == start:
                break
            yield self._partitions[(self._next + i) % count], batch.slice(start, stop)
            start = stop
        self._next = (self._next + len(batch)) % count


class _Shuffle:
    def __init__(self, partitions: range, record_type: RecordType, seed: int) -> None:
        self._partitions = partitions
        self._record_type = record_type
        self._random = np.random.default_rng(seed)

    def __call__(self, batch: Batch) -> Parts:
        places = self._random.integers(0, len(self._partitions), len(batch))
        for place, part in _split(batch, places, self._record_type):
            yield self._partitions[place], part


class _Hash:
    """Partitions by the key group of each record's key."""

    def __init__(
        self,
        select: Callable[[Any], Any],
        key_field: str | None,
        key_type: RecordType,
        record_type: RecordType,
        target: Callable[[Any], int],
    ) -> None:
        self._select = select
        self._key_type = key_type
        self._record_type = record_type
        self._target = target
        self._cache: dict[Any, int] = {}
        names = [name for name, _ in record_type.columns()]
        self._column = names.index(key_field) if key_field in names else None
        if self._column is not None and not _can_be_dictionary(record_type.columns()[self._column][1]):
            self._column = None

    def __call__(self, batch: Batch) -> Parts:
        targets = None
        if self._column is not None and (batch.is_columnar or len(batch) >= _FEW):
            targets = self._by_column(batch, self._column)
        yield from _split(batch, self._by_row(batch) if targets is None else targets, self._record_type)

    def _by_column(self, batch: Batch, column: int) -> np.ndarray[Any, Any] | None:
        keys = batch.columns(self._record_type)[column]
        if keys.null_count:
            return None
        encoded = keys.dictionary_encode()
        distinct = self._key_type.decode(encoded.dictionary)
        targets = np.fromiter(self._targets(distinct), np.int64, len(distinct))
        found: np.ndarray[Any, Any] = targets[encoded.indices.to_numpy()]
        return found

    def _by_row(self, batch: Batch) -> list[int]:
        records = OrderedCalls(batch)
        try:
            keys = list(map(self._select, records))
            records.end()
            return self._targets(keys)
        except (Exception, SystemExit) as error:
            raise UserCodeError("key_by", None, records.index) from error

    def _targets(self, keys: Sequence[Any]) -> list[int]:
        known = self._cache
        try:
            return [known[key] for key in keys]
        except KeyError:
            pass
        if len(known) > _REMEMBERED:
            known.clear()
        for key in keys:
            if key not in known:
                known[key] = self._target(key)
        return [known[key] for key in keys]


class _Custom:
    """Partitions by the user's partitioner."""

    def __init__(
        self,
        partitioner: Callable[[Any, int], int],
        select: Callable[[Any], Any],
        partitions: int,
        record_type: RecordType,
    ) -> None:
        self._partitioner = partitioner
        self._select = select
        self._count = partitions
        self._record_type = record_type

    def __call__(self, batch: Batch) -> Parts:
        records = OrderedCalls(batch)
        try:
            places = [self._place(self._select(value)) for value in records]
        except (Exception, SystemExit) as error:
            raise UserCodeError("partition_custom", None, records.index) from error
        yield from _split(batch, places, self._record_type)

    def _place(self, key: Any) -> int:
        place = operator.index(self._partitioner(key, self._count))
        if not 0 <= place < self._count:
            raise ValueError(
                f"the partitioner returned {place} for a key, not one of the partitions 0 to {self._count - 1}"
            )
        return place


def _split(batch: Batch, places: Sequence[int] | np.ndarray[Any, Any], record_type: RecordType) -> Parts:
    """Groups the records by partition, in the order of the batch. Large groups become columns, the form that
    channels carry."""
    if not batch.is_columnar and len(batch) < _FEW:
        found: dict[int, list[int]] = {}
        for i, place in enumerate(places):
            found.setdefault(place, []).append(i)
        for place, indices in found.items():
            yield place, batch.take(indices)
        return
    columns = Batch.from_columns(batch.timestamp_column(), batch.columns(record_type), record_type)
    array = np.asarray(places, np.uint16)  # a narrow type, which numpy sorts by radix
    order = np.argsort(array, kind="stable")
    ordered = array[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(order)]
    for start, stop in pairwise(starts):
        whole = stop - start == len(order)
        yield int(ordered[start]), columns if whole else columns.take(order[start:stop])


def _can_be_dictionary(of: RecordType) -> bool:
    arrow = of.arrow_type()
    return of is not PICKLED and not pa.types.is_nested(arrow)


def _functions(edge: JobEdge) -> tuple[Any, ...]:
    try:
        return load_code(edge.code)
    except Exception as error:
        raise UserCodeError(edge.partitioner.value.lower(), None) from error
