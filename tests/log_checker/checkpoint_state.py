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
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    pending: dict[int, Checkpoint] = field(default_factory=dict)
    retained: dict[int, Checkpoint] = field(default_factory=dict)
    """Complete ones that are not discarded; no savepoints."""
    unreadable: set[str] = field(default_factory=set)
    """Directories that were passed over when one was looked for."""
    removed: bool = False
    failed_at: int = NEVER
    """The offset at which its JobMaster failed."""
    last_end: tuple[int, int] = (-1, 0)
    """(offset, time) at which a checkpoint ended last, one way or the other; forgotten when the job goes back."""

    def number(self, key: str) -> int:
        return int(self.settings.get(key, "1"))

    def duration(self, key: str, default: int) -> int:
        text = self.settings.get(key)
        return default if text is None else microseconds(text)


def place(uri: str) -> str:
    """Normalises a directory: a local path with or without file:// is the same."""
    return uri.removeprefix("file://").rstrip("/")
