"""Tests a user's source: reads it, and ends and restarts it after every poll."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...schemas.types import OperatorConfig
from ..functions import RuntimeContext, Source, SourceReader, SourceReaderContext, SourceRecords, SourceSplit
from ..runtime.operators.task_context import TaskContext
from ..runtime.records.timestamps import encode_timestamps
from ..runtime.state_backend.stateful import Origin
from ..runtime.stream_task.input.sources.custom import CustomSource
from ..runtime.stream_task.input.sources.source import SourceSetup
from ..sentinels import dump_code
from .contract import Contract

_LIMITS: Final = (1_000, 1, 7)
_RESTARTS: Final = 8
"""Polls of a split after which it is continued by another reader."""
_COMPARED: Final = 25
"""Records that are compared behind a restart."""
_PARALLELISMS: Final = (1, 2, 3, 1)


def check_source(source: Source[Any], *, most_records: int = 200, timeout_s: float = 10.0) -> list[Any]:
    """Raises ContractBroken, in one line, if a source breaks its contract. Returns the records that it read.

    Reads each split, up to `most_records`, with several limits. After each poll another copy of the source continues
    from the position, as after a failure. If the splits end within that number, the task's own code reads all of them,
    with failures after each poll and at changing parallelism. The input must stay the same meanwhile. `timeout_s`: the
    time that each call may take.
    """
    contract = Contract(source, timeout_s)
    create = contract.copy(source)
    first = _Copy(contract, create)
    splits = first.splits()
    other = _Copy(contract, create)
    ids, others = [split.split_id for split in splits], other.ids()
    other.close()
    if source.discovery_interval is None and others != ids:
        raise contract.broken(
            f"splits returned {ids}, and in another subtask {others}: all subtasks have to find the same"
        )
    records: list[Any] = []
    all_end = True
    for split in splits:
        read, has_ended = first.read(split, None, _LIMITS[0], most_records)
        whole = [record for _, record in read]
        records += whole
        all_end = all_end and has_ended
        for limit in _LIMITS:
            _check_split(contract, create, split, whole, limit, is_whole=len(whole) < most_records)
    first.close()
    if all_end and source.discovery_interval is None:
        for parallelism in _PARALLELISMS:
            _check_task(contract, create, records, parallelism)
        _check_rescaled(contract, create, records)
    return records


class _Copy:
    """A copy of the source in an attempt of its own."""

    def __init__(self, contract: Contract, create: Callable[[], Source[Any]]) -> None:
        self._contract = contract
        self._source = create()
        self._context: RuntimeContext = TaskContext()
        contract.call("open", lambda: self._source.open(self._context))

    def splits(self) -> list[SourceSplit]:
        found: list[Any] = self._contract.call("splits", lambda: list(self._source.splits()))
        for split in found:
            if not isinstance(split, SourceSplit):
                raise self._contract.broken(f"splits returned {split!r}, not a SourceSplit")
            self._contract.copy(split.value)
        return found

    def ids(self) -> list[str]:
        return [split.split_id for split in self.splits()]

    def read(
        self, split: SourceSplit, position: Any, limit: int, most: int, polls: int | None = None
    ) -> tuple[list[tuple[Any, Any]], bool]:
        """Reads a split by a new reader: at least `most` records, or as many as there are now, or as `polls` return.

        Returns records, each with the position behind its poll (None but for the last record of a poll), and whether
        the split has ended.
        """
        contract, name = self._contract, f"poll of split {split.split_id!r}"
        context = SourceReaderContext(self._context, lambda: None)
        reader: SourceReader[Any] = contract.call(
            "create_reader", lambda: self._source.create_reader(split, context)
        )
        found: list[tuple[Any, Any]] = []
        give_up = time.monotonic() + contract.timeout_s
        has_ended = False
        while not has_ended and len(found) < most and polls != 0 and time.monotonic() < give_up:
            polls = None if polls is None else polls - 1
            at, before = position, self._dumped(name, position)
            polled: Any = contract.call(name, partial(reader.poll, position, limit))
            if not isinstance(polled, SourceRecords):
                raise contract.broken(f"{name} returned {polled!r}, not SourceRecords")
            records, position, has_ended = list(polled.records), polled.position, polled.has_ended
            position = contract.copy(position)() if self._dumped(name, position) else position
            if records and self._dumped(name, position) == before:
                raise contract.broken(
                    f"the position of split {split.split_id!r} does not advance: poll returned {len(records)} records,"
                    f" and the position {at!r} that it was called with"
                )
            found += [
                (position if i == len(records) - 1 else None, record) for i, record in enumerate(records)
            ]
            if polled.timestamps is not None and len(polled.timestamps) != len(records):
                raise contract.broken(
                    f"{name} returned {len(records)} records and {len(polled.timestamps)} timestamps"
                )
            if polled.timestamps is not None:
                try:
                    encode_timestamps(f"{name} returned the timestamp", list(polled.timestamps))
                except TypeError as error:
                    raise contract.broken(str(error)) from error
            if not records and not has_ended:
                if not polled.wait_s > 0:
                    raise contract.broken(
                        f"{name} returned no records and wait_s={polled.wait_s!r}: the task would ask again and again"
                    )
                if not self._source.bounded:
                    break
                time.sleep(min(polled.wait_s, 0.02))
        contract.call(f"close of the reader of split {split.split_id!r}", reader.close)
        return found, has_ended

    def close(self) -> None:
        self._contract.call("close", self._source.close)

    def _dumped(self, name: str, position: Any) -> bytes:
        try:
            return dump_code(position, sends_program=False)
        except Exception as error:
            raise self._contract.broken(
                f"{name} returned the position {position!r}, not picklable: {error}"
            ) from error


def _check_split(
    contract: Contract,
    create: Callable[[], Source[Any]],
    split: SourceSplit,
    expected: list[Any],
    limit: int,
    *,
    is_whole: bool,
) -> None:
    """Continues a split after each poll by a new copy. `is_whole`: whether `expected` is all that the split has."""
    copy = _Copy(contract, create)
    read, _ = copy.read(split, None, limit, len(expected) or 1)
    copy.close()
    unit = f" (split {split.split_id!r}, polls with limit {limit})"
    values = [record for _, record in read]
    contract.compare(
        values[: len(expected)],
        expected[: len(values)],
        "in another attempt that reads from the beginning",
        unit=unit,
    )
    restarts = [(i + 1, position) for i, (position, _) in enumerate(read) if position is not None][:_RESTARTS]
    for done, position in restarts:
        again = _Copy(contract, create)
        wanted = expected[done : done + _COMPARED]
        following, _ = again.read(split, position, limit, max(1, len(wanted)))
        again.close()
        values = [record for _, record in following]
        when = f"after a restart at position {position!r}, behind record {done}"
        contract.compare(values[: len(wanted)], wanted, when, unit=unit)
        if is_whole and len(wanted) < _COMPARED:
            contract.compare(values, wanted, when, unit=unit)
        if values[: len(wanted)] != wanted:
            raise contract.broken(f"the records of split {split.split_id!r} come in another order {when}")


def _changes_of(source: CustomSource) -> list[bytes]:
    return list(source.take_changes())


class _Task:
    """The subtasks of a source, with what they have committed."""

    def __init__(
        self,
        contract: Contract,
        create: Callable[[], Source[Any]],
        parallelism: int,
        before: list[list[bytes]],
    ) -> None:
        self._contract = contract
        self._create = create
        self._parallelism = parallelism
        self._before = before
        self.changelogs: list[list[bytes]] = [[] for _ in range(parallelism)]
        self.read: list[Any] = []

    def attempt(self, subtask: int) -> CustomSource:
        config = OperatorConfig(
            operator_id="source",
            name=self._contract.name,
            kind="custom_source",
            parameters="{}",
            code=dump_code((self._create(),)),
        )
        source = CustomSource(config)
        if len(self._before) == self._parallelism:
            for message in self._before[subtask]:
                source.restore(message)
        else:
            for index, messages in enumerate(self._before):
                source.restore_from(Origin(index, len(self._before), 128))
                for message in messages:
                    source.restore(message)
            source.restore_from(None)
        for message in self.changelogs[subtask]:
            source.restore(message)
        context = TaskContext(subtask_index=subtask, parallelism=self._parallelism)
        setup = SourceSetup(config, context, lambda: round(time.time() * 1000))
        self._contract.call("open", lambda: source.open(setup))
        return source

    def run(self, subtask: int, polls: int | None, limit: int = 3) -> None:
        """Reads: each poll is committed by an attempt that fails after one more poll; None: to the end."""
        give_up = time.monotonic() + self._contract.timeout_s
        has_ended = False
        while not has_ended and polls != 0 and time.monotonic() < give_up:
            source = self.attempt(subtask)
            for _ in range(1 if polls is not None else 1_000):
                polled = self._contract.call("poll", partial(source.poll, limit))
                self.read += [] if polled.batch is None else polled.batch.values
                has_ended = polled.has_ended
                if has_ended:
                    break
                if polled.batch is None:
                    time.sleep(min(polled.wait_s, 0.02))
            self.changelogs[subtask] += self._contract.call("poll", partial(_changes_of, source))
            if not has_ended:
                self._contract.call("poll", partial(source.poll, limit))
            self._contract.call("close", source.close)
            polls = None if polls is None else polls - 1

    def checkpoint(self) -> list[list[bytes]]:
        """Returns all state of all subtasks."""
        state = []
        for subtask in range(self._parallelism):
            source = self.attempt(subtask)
            self.changelogs[subtask] += source.take_changes()
            state.append([message for _, message in source.full([])])
            self._contract.call("close", source.close)
        return state


def _check_task(
    contract: Contract, create: Callable[[], Source[Any]], expected: list[Any], parallelism: int
) -> None:
    task = _Task(contract, create, parallelism, [])
    for subtask in range(parallelism):
        task.run(subtask, _RESTARTS)
        task.run(subtask, None)
    contract.compare(
        task.read, expected, f"with parallelism {parallelism} and failures between commits", unit=""
    )


def _check_rescaled(contract: Contract, create: Callable[[], Source[Any]], expected: list[Any]) -> None:
    state: list[list[bytes]] = []
    read: list[Any] = []
    for parallelism in _PARALLELISMS:
        task = _Task(contract, create, parallelism, state)
        for subtask in range(parallelism):
            task.run(subtask, 2)
        state = task.checkpoint()
        read += task.read
    last = _Task(contract, create, 2, state)
    for subtask in range(2):
        last.run(subtask, None)
    contract.compare(read + last.read, expected, f"at parallelism {_PARALLELISMS} in turn", unit="")
