"""The partitions and offsets that a subtask of a Kafka source reads, fixed once when its first attempt opens.

An attempt finds the partitions when it opens. The last progress entry counts. A subtask without one resolves its first
offsets, and a bounded source also its ends, and commits them before the first record: later attempts must not see
another `latest`. A subtask that finds nothing to read commits an entry without positions; partitions that are added
later are read from their first record. The ends are part of every entry, like the ended senders of channels.

An end is the offset after the last record that a reader of committed records can see now. Control records, aborted and
compacted ones occupy offsets too. So the end is found by reading the tail of the partition, not by counting back from
its end. A position at or after it ends the partition. Partitions that were added later begin at their first record; a
bounded source has none of them.

A generation that rolls back to a checkpoint begins at the checkpoint's positions, whatever older generations committed.
The ends stay those that were found first. If a partition no longer holds a position, the task fails or the position
moves, as the source says (OnDataLoss). A moved position is committed before the first record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .....infra.kafka_connection import KafkaConnection
from ...common.failures import TaskError
from ...common.kafka_clients import group_consumer
from ...common.offset_bounds import watermarks
from ...operators.kafka_source_parameters import KafkaSourceParameters, OnDataLoss, StartingMode
from ..state.progress_entry import ProgressEntry
from .offset_resets import TopicPlace

_log = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
_APPEARS_S: Final = 3.0
"""A new topic may not be known to all brokers yet."""

Place = tuple[int, int]
"""(index of the topic, partition)"""


class KafkaSourceOffsets(msgspec.Struct, frozen=True):
    """The offsets that a subtask reads."""

    topics: tuple[str, ...]
    """By index of the input."""
    positions: Mapping[Place, int]
    """The next offset of each partition that the subtask reads."""
    ends: Mapping[Place, int] | None
    """The end offsets of a bounded source."""
    resolved: bool
    """Whether new offsets were resolved that must be committed before the first record."""


class ResumedPositions(msgspec.Struct, frozen=True):
    """The attempt begins a generation, and rolls back to a checkpoint."""

    positions: Mapping[str, Mapping[int, int]] | None
    """Topic -> partition -> the next offset; None if the checkpoint does not contain this source."""
    of_other_job: bool = False
    """Whether the checkpoint is of another job, which this one continues."""


class _CommittedPosition(msgspec.Struct, frozen=True):
    """The committed position of one partition."""

    offset: int
    end: int | None


def resolve_offsets(
    consumer: Consumer,
    kafka: KafkaConnection,
    source: KafkaSourceParameters,
    subtask: int,
    parallelism: int,
    *,
    generation: int = 0,
    entry: ProgressEntry | None = None,
    resumption: ResumedPositions | None = None,
    reset: Mapping[TopicPlace, int] = {},
) -> KafkaSourceOffsets:
    """Finds partitions and positions. `entry`: the last progress entry, of any generation. `reset`: positions to begin
    at, whatever was committed (offset_resets.py). Raises TaskError.

    With a `resumption` nothing is committed before the first transaction of the generation, which has all positions.
    """
    if source.topic_pattern is not None:
        source = msgspec.structs.replace(source, topics=_matching_topics(consumer, source, kafka))
    counts = {topic: _partitions(consumer, topic, kafka) for topic in source.topics}
    index = {topic: i for i, topic in enumerate(source.topics)}
    places = [
        (index[topic], partition)
        for topic, partition in source.assigned_partitions(counts, subtask, parallelism)
    ]
    committed = _committed_positions(source, entry)
    if resumption is not None:
        offsets = _RestoredOffsets(consumer, kafka, source, resumption, committed)
        positions = {**offsets.starts(places), **_reset_positions(consumer, source, places, reset)}
        return KafkaSourceOffsets(
            source.topics, positions, offsets.ends(positions) if source.bounded else None, resolved=False
        )
    has_past = entry is not None and entry.generation == generation
    known = {place: committed[place] for place in places if has_past and place in committed}
    again = _reset_positions(consumer, source, places, reset)
    held = _Held(consumer, source)
    positions = {
        place: held.position(place, bounds.offset, bounds.end)
        for place, bounds in known.items()
        if place not in again
    }
    ends = (
        {place: _end_of(source, place, bounds) for place, bounds in known.items()} if source.bounded else None
    )
    fresh: dict[Place, int] = {}
    unknown = [place for place in places if place not in known]
    if not has_past:
        fresh = _InitialOffsets(consumer, kafka, source).starts(unknown)
        if ends is not None:
            ends = {place: _end(consumer, source.topics[place[0]], place[1], fresh[place]) for place in fresh}
    elif not source.bounded:
        fresh = {place: _watermarks(consumer, source.topics[place[0]], place[1])[0] for place in unknown}
    if ends is not None:
        again = {place: min(again[place], ends[place]) for place in again if place in ends}
    return KafkaSourceOffsets(
        source.topics,
        {**positions, **fresh, **again},
        ends,
        resolved=bool(fresh) or bool(reset) or held.lost or not has_past,
    )


def _reset_positions(
    consumer: Consumer,
    source: KafkaSourceParameters,
    places: Sequence[Place],
    reset: Mapping[TopicPlace, int],
) -> dict[Place, int]:
    """Returns the positions of the subtask's partitions that are reset."""
    held = _Held(consumer, source)
    return {
        (i, partition): held.position((i, partition), reset[source.topics[i], partition])
        for i, partition in places
        if (source.topics[i], partition) in reset
    }


def _committed_positions(
    source: KafkaSourceParameters, entry: ProgressEntry | None
) -> dict[Place, _CommittedPosition]:
    found: dict[Place, _CommittedPosition] = {}
    for i, topic in enumerate(source.topics):
        of_topic = None if entry is None else entry.find_input(topic)
        if of_topic is not None:
            found |= {
                (i, partition): _CommittedPosition(offset, of_topic.ends.get(partition))
                for partition, offset in of_topic.positions.items()
            }
    return found


def _end_of(source: KafkaSourceParameters, place: Place, known: _CommittedPosition) -> int:
    if known.end is None:
        raise TaskError(
            f"the progress of {source.topics[place[0]]}-{place[1]} names no end: the job's source was not bounded when"
            " it was started"
        )
    return known.end


class _Held:
    """The records that the partitions of a source still hold."""

    def __init__(self, consumer: Consumer, source: KafkaSourceParameters) -> None:
        self._consumer = consumer
        self._source = source
        self.lost = False
        """Whether a position was moved, because the records after it were deleted."""

    def position(self, place: Place, position: int, end: int | None = None) -> int:
        """Returns where to continue from a position. Nothing at or after `end` is read.

        Raises TaskError if unread records were deleted and the source must fail then.
        """
        topic, partition = self._source.topics[place[0]], place[1]
        if end is not None and position >= end:
            return position
        low, high = _watermarks(self._consumer, topic, partition)
        if low <= position <= high:
            return position
        lost = (
            f"{topic}-{partition} is to be read on from offset {position}, and holds {low} to {high}: records were"
            " deleted before they were read"
        )
        if self._source.on_data_loss is OnDataLoss.FAIL:
            raise TaskError(
                f"{lost}. Increase the retention of the topic, or continue without them:"
                ' KafkaSource(on_data_loss="earliest" or "latest")'
            )
        self.lost = True
        again = low if self._source.on_data_loss is OnDataLoss.EARLIEST else high
        _log.warning("%s; the source continues at %d (on_data_loss)", lost, again)
        return again


class _InitialOffsets:
    """The start of a source that has committed nothing."""

    def __init__(self, consumer: Consumer, kafka: KafkaConnection, source: KafkaSourceParameters) -> None:
        self._consumer = consumer
        self._kafka = kafka
        self._source = source

    def starts(self, places: Sequence[Place]) -> dict[Place, int]:
        """Returns the first offset of each partition."""
        topics, starting = self._source.topics, self._source.starting
        by_start: dict[tuple[StartingMode, int, int], list[Place]] = {}
        for i, partition in places:
            start = starting.position(topics[i], partition)
            by_start.setdefault((start.mode, start.timestamp_ms or 0, start.offset or 0), []).append(
                (i, partition)
            )
        return {
            place: offset
            for (mode, timestamp_ms, at), those in by_start.items()
            for place, offset in self._starts(mode, timestamp_ms, at, those).items()
        }

    def _starts(
        self, mode: StartingMode, timestamp_ms: int, offset: int, places: Sequence[Place]
    ) -> dict[Place, int]:
        topics = self._source.topics
        bounds = {
            (i, partition): _watermarks(self._consumer, topics[i], partition) for i, partition in places
        }
        match mode:
            case StartingMode.EARLIEST:
                return {place: low for place, (low, _) in bounds.items()}
            case StartingMode.LATEST:
                return {place: high for place, (_, high) in bounds.items()}
            case StartingMode.COMMITTED:
                committed = self._committed(places)
                return {place: max(low, committed.get(place, low)) for place, (low, _) in bounds.items()}
            case StartingMode.TIMESTAMP:
                found = self._at_timestamp(places, timestamp_ms)
                return {place: found.get(place, high) for place, (_, high) in bounds.items()}
            case StartingMode.OFFSET:
                held = _Held(self._consumer, self._source)
                return {place: held.position(place, offset) for place in places}

    def _committed(self, places: Sequence[Place]) -> dict[Place, int]:
        group = self._source.group_id
        if group is None:
            raise TaskError("a Kafka source starts from committed offsets, but has no group_id: give one")
        theirs = group_consumer(self._kafka, group)
        try:
            found = theirs.committed(
                [TopicPartition(*partition) for partition in self._named(places)], _TIMEOUT_S
            )
        except KafkaException as error:
            raise _silent(error.args[0]) from error
        finally:
            theirs.close()
        for partition in found:
            if partition.error is not None:
                raise _silent(partition.error)
        return {
            place: partition.offset
            for place, partition in zip(places, found, strict=True)
            if partition.offset >= 0
        }

    def _at_timestamp(self, places: Sequence[Place], at: int) -> dict[Place, int]:
        asked = [TopicPartition(topic, partition, at) for topic, partition in self._named(places)]
        try:
            answered = self._consumer.offsets_for_times(asked, _TIMEOUT_S) if asked else []
        except KafkaException as error:
            raise _silent(error.args[0]) from error
        for partition in answered:
            if partition.error is not None:
                raise _silent(partition.error)
        return {
            place: partition.offset
            for place, partition in zip(places, answered, strict=True)
            if partition.offset >= 0
        }

    def _named(self, places: Sequence[Place]) -> list[tuple[str, int]]:
        return [(self._source.topics[i], partition) for i, partition in places]


class _RestoredOffsets:
    """The start of a source that rolls back to a checkpoint."""

    def __init__(
        self,
        consumer: Consumer,
        kafka: KafkaConnection,
        source: KafkaSourceParameters,
        resumption: ResumedPositions,
        committed: Mapping[Place, _CommittedPosition],
    ) -> None:
        self._consumer = consumer
        self._kafka = kafka
        self._source = source
        self._positions = resumption.positions
        self._of_other_job = resumption.of_other_job
        self._committed = committed

    def starts(self, places: Sequence[Place]) -> dict[Place, int]:
        """Returns the checkpoint's positions; the first record for a partition that it does not have; the initial
        offsets for a new source, and for one whose offsets are reset."""
        restored = self._positions
        if restored is None or (self._of_other_job and self._source.resets_offsets):
            return _InitialOffsets(self._consumer, self._kafka, self._source).starts(places)
        return {place: self._start(place, restored) for place in places}

    def ends(self, starts: Mapping[Place, int]) -> dict[Place, int]:
        """Returns the ends that were committed first; the current ends if this is another job."""
        found: dict[Place, int] = {}
        for place, start in starts.items():
            known = self._committed.get(place)
            end = None if known is None else known.end
            if end is None:
                end = _end(self._consumer, self._source.topics[place[0]], place[1], start)
            found[place] = max(end, start)
        return found

    def _start(self, place: Place, restored: Mapping[str, Mapping[int, int]]) -> int:
        topic, partition = self._source.topics[place[0]], place[1]
        position = restored.get(topic, {}).get(partition)
        if position is None:
            return _watermarks(self._consumer, topic, partition)[0]
        return _Held(self._consumer, self._source).position(place, position)


def _partitions(consumer: Consumer, topic: str, kafka: KafkaConnection) -> int:
    deadline = time.monotonic() + _APPEARS_S
    while True:
        try:
            found = consumer.list_topics(topic, _TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise _silent(error.args[0]) from error
        if found.error is None and found.partitions:
            return len(found.partitions)
        if time.monotonic() > deadline:
            reason = "does not exist" if found.error is None else _why(found.error)
            raise TaskError(
                f"the Kafka source's topic {topic!r} {reason} at {kafka}: create it, or correct its name"
            )
        time.sleep(0.05)


def _matching_topics(
    consumer: Consumer, source: KafkaSourceParameters, kafka: KafkaConnection
) -> tuple[str, ...]:
    try:
        found = source.matching(consumer.list_topics(timeout=_TIMEOUT_S).topics)
    except KafkaException as error:
        raise _silent(error.args[0]) from error
    if not found:
        raise TaskError(
            f"no topic at {kafka} matches the Kafka source's pattern {source.topic_pattern!r}: create one, or correct"
            " the pattern"
        )
    return found


def _why(error: KafkaError) -> str:
    if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return "does not exist"
    return f"cannot be read ({error.str()})"


def _watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Returns the first offset, and the offset after the last committed record now."""
    try:
        return watermarks(consumer, topic, partition)
    except KafkaException as error:
        raise _silent(error.args[0]) from error


def _end(consumer: Consumer, topic: str, partition: int, start: int) -> int:
    """Returns the offset after the last record at or after `start` that can be read now; `start` if there is none."""
    low, high = _watermarks(consumer, topic, partition)
    back = 1
    while high > start:
        begin = max(low, start, high - back)
        last = _last_record(consumer, topic, partition, begin, high)
        if last is not None:
            return last + 1
        if begin <= max(low, start):
            return start
        back *= 8
    return start


def _last_record(consumer: Consumer, topic: str, partition: int, begin: int, high: int) -> int | None:
    """Returns the offset of the last record from `begin` to before `high`, found by reading to the end of the
    partition."""
    last = None
    consumer.assign([TopicPartition(topic, partition, begin)])
    try:
        while True:
            message = consumer.poll(_TIMEOUT_S)
            if message is None:
                raise TaskError(f"{topic} returned nothing for {_TIMEOUT_S:.0f} s: is Kafka up?")
            error = message.error()
            offset = message.offset()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return last
                if not error.retriable():
                    raise _silent(error)
            elif offset is not None and offset < high:
                last = offset
            else:
                return last
    finally:
        consumer.unassign()


def _silent(error: KafkaError) -> TaskError:
    return TaskError(f"the first offsets of a Kafka source could not be read: {error.str()}; is Kafka up?")
