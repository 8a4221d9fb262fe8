"""Commit markers: `_SUCCESS` in a bucket when the event time of all subtasks has passed it, and in the sink's directory
when all subtasks have finished. So a reader knows that no record that is in time follows.

The subtasks agree by files. Each replaces a hidden file of its own that has the time up to which its records are
published, and then reads those of all others: whoever comes last sees all of them, and writes the markers. A file of
another generation or parallelism does not count. An idle subtask without open files holds nothing back.
"""

from __future__ import annotations

from typing import BinaryIO, Final

import msgspec

from .output_directory import OutputDirectory

MARKER: Final = "_SUCCESS"


class SinkProgress(msgspec.Struct, frozen=True):
    """What a subtask says of itself in its file."""

    generation: int
    parallelism: int
    time: int
    """The records of buckets that end until then are published."""
    is_idle: bool
    has_finished: bool
    unmarked: dict[str, int]
    """The ends of buckets with published records, which may have no marker yet."""


_DECODER: Final = msgspec.json.Decoder(SinkProgress)


class CommitMarkers:
    """Belongs to one subtask. All methods raise OSError."""

    def __init__(
        self, directory: OutputDirectory, sink: str, subtask: int, parallelism: int, generation: int
    ) -> None:
        """`sink`: how the names of its files begin."""
        self._directory = directory
        self._sink = sink
        self._subtask = subtask
        self._parallelism = parallelism
        self._generation = generation
        self._told: SinkProgress | None = None

    def would_tell(self, time: int, *, is_idle: bool) -> bool:
        """Whether others do not know that yet."""
        return self._told is None or (self._told.time, self._told.is_idle) != (time, is_idle)

    def tell(self, time: int, unmarked: dict[str, int], *, is_idle: bool, has_finished: bool) -> list[str]:
        """Tells the others, and writes the markers that are due. Returns the buckets that have one."""
        own = SinkProgress(self._generation, self._parallelism, time, is_idle, has_finished, dict(unmarked))
        if own == self._told:
            return []
        data = msgspec.json.encode(own)

        def write(out: BinaryIO) -> None:
            out.write(data)

        self._directory.publish(self._file(self._subtask), write, replaces=True)
        self._told = own
        subtasks = self._read_all()
        if subtasks is None:
            return []
        times = [each.time for each in subtasks if not each.is_idle] or [each.time for each in subtasks]
        passed = min(times)
        due = {bucket for each in subtasks for bucket, end in each.unmarked.items() if end <= passed}
        for bucket in sorted(due):
            self._directory.publish(f"{bucket}/{MARKER}", lambda out: None)
        if all(each.has_finished for each in subtasks):
            self._directory.publish(MARKER, lambda out: None, replaces=True)
            for subtask in range(self._parallelism):
                self._directory.remove(self._file(subtask))
        return sorted(due)

    def withdraw(self, buckets: set[str]) -> None:
        """Removes the markers of buckets whose files were removed, after a rollback."""
        for bucket in buckets:
            self._directory.remove(f"{bucket}/{MARKER}" if bucket else MARKER)
        self._directory.remove(MARKER)

    def _read_all(self) -> list[SinkProgress] | None:
        """Returns what all subtasks say; None if one says nothing yet."""
        found = []
        for subtask in range(self._parallelism):
            data = self._directory.read(self._file(subtask))
            each = None if data is None else _DECODER.decode(data)
            if each is None or (each.generation, each.parallelism) != (self._generation, self._parallelism):
                return None
            found.append(each)
        return found

    def _file(self, subtask: int) -> str:
        return f".{self._sink}progress-{subtask}"
