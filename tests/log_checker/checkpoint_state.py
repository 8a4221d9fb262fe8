"""The state of a checkpoint according to the log, and a job's checkpoint settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from .attempts import NEVER, Attempt
from .durations import microseconds

RETAINED = "state.checkpoints.num-retained"
CONCURRENT = "execution.checkpointing.max-concurrent-checkpoints"
INTERVAL = "execution.checkpointing.interval"
MIN_PAUSE = "execution.checkpointing.min-pause"
TIMEOUT = "execution.checkpointing.timeout"


@dataclass(slots=True)
class Checkpoint:
    """One checkpoint or savepoint. Offsets of steps that have not happened are NEVER."""

    checkpoint_id: int
    is_savepoint: bool
    is_periodic: bool
    awaited: dict[str, Attempt]
    finished: set[tuple[str, str, int]]
    """Subtasks that have no state in it, as they had finished."""
    generation: int
    triggered: int
    time: int
    acknowledged: set[str] = field(default_factory=set)
    uri: str = ""
    completed: int = NEVER
    aborted: int = NEVER
    discarded: int = NEVER

    @property
    def pending(self) -> bool:
        """Returns whether it is neither complete nor aborted."""
        return self.completed == self.aborted == NEVER

    def exists_at(self, offset: int) -> bool:
        """Returns whether it is complete and retained for a reader at `offset`."""
        return self.completed <= offset < self.discarded


@dataclass(slots=True)
class Job:
    """A job's settings, and its checkpoints by their ids."""

    settings: dict[str, str]
    """Those that it was started with."""
    changes: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """(offset, all settings that differ from then on), in the order of the log."""
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    pending: dict[int, Checkpoint] = field(default_factory=dict)
    retained: dict[int, Checkpoint] = field(default_factory=dict)
    """Complete ones that are not discarded; no savepoints."""
    unreadable: set[str] = field(default_factory=set)
    """Directories that were passed over when one was looked for."""
    removed: bool = False
    failed_at: int = NEVER
    """The offset at which its JobMaster failed."""
    overtaken: set[int] = field(default_factory=set)
    """The checkpoints whose trigger, decided before, reached the log after the JobMaster failed: the job aborts them,
    or does not know them any more."""
    last_end: tuple[int, int] = (-1, 0)
    """(offset, time) at which a checkpoint ended last, one way or the other; forgotten when the job goes back."""

    def change(self, offset: int, configuration: dict[str, str], removed: list[str]) -> None:
        before = self.changes[-1][1] if self.changes else {}
        kept = {key: text for key, text in before.items() if key not in removed}
        self.changes.append((offset, {**kept, **configuration}))

    def text(self, key: str, at: int) -> str | None:
        """Returns a setting as a decision sees it that knows the log up to an offset."""
        known = [changed for offset, changed in self.changes if offset <= at]
        return {**self.settings, **(known[-1] if known else {})}.get(key)

    def number(self, key: str, at: int) -> int:
        return int(self.text(key, at) or "1")

    def least(self, key: str, before: int) -> int:
        """Returns the least value that a setting had before an offset."""
        return min(
            self.number(key, at) for at in (0, *(offset for offset, _ in self.changes if offset < before))
        )

    def duration(self, key: str, default: int, at: int) -> int:
        text = self.text(key, at)
        return default if text is None else microseconds(text)


def place(uri: str) -> str:
    """Normalises a directory: a local path with or without file:// is the same."""
    return uri.removeprefix("file://").rstrip("/")
