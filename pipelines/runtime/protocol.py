"""What is said between the TaskExecutor's runtime, its StreamTask processes, and Spark's Python workers.

The runtime and a StreamTask exchange `Command`s and `Notice`s as MessagePack frames over a socket pair.
A worker of Spark greets the runtime's lobby with a `Greeting`, and hands buffers over to StreamTasks as
frames that begin with HANDED_OVER.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from .deployment import VertexDeployment

HANDED_OVER: Final = struct.Struct("<BHq")
"""Kind of frame, index of the input, offset of the buffer on its channel."""
BUFFER: Final = 0
FAILURE: Final = 1


class Open(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: be this subtask of the vertex."""

    deployment: VertexDeployment
    subtask_index: int
    attempt_number: int
    bootstrap_servers: str


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Runtime -> StreamTask: abort the open transaction and end."""


Command = Open | Cancel


class Restored(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: older attempts are fenced; each input goes on from this offset."""

    process_id: int
    positions: tuple[int, ...]


class Opened(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: all operators are open, and the source, if there is one, is connected."""


class Counted(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: what the attempt has committed so far (Flink's accumulators, by their names there)."""

    records_in: int
    """Records that were read from inputs or the source."""
    records_out: int
    """Records that were written to channels."""
    commits: int

    def as_accumulators(self) -> dict[str, float]:
        """By name."""
        return {
            "numRecordsIn": self.records_in,
            "numRecordsOut": self.records_out,
            "numCommits": self.commits,
        }


class Finished(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: all input has ended and all output is committed."""


class Canceled(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: ended because of Cancel."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """StreamTask -> runtime: ended because of an error."""

    reason: str


Notice = Restored | Opened | Counted | Finished | Canceled | Failed


class Greeting(msgspec.Struct, frozen=True):
    """Spark's Python worker -> lobby: a task of this deployment's query is up, or cannot be."""

    deployment: int
    failure: str | None = None
