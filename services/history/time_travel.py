"""The state of every role at any offset, from the log alone.

`state_hash` is the same for the same prefix of the log, on every machine and however the log was read; `hashes` are
those that StateHash tells of (snapshots/hashing.py).

A replica begins at whatever is nearest before the offset, a mark of the history index or a snapshot of the cluster, and
folds the rest of the way; whichever it is, it comes to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ...infra.storage.errors import CheckpointError
from ..core.feature_level import FIRST_LEVEL
from ..core.replica import Replica, tune_gc_for_replay
from ..log import EventLog
from ..log.event_log import read_to_end
from ..snapshots.builder import all_roles
from ..snapshots.encoding import LEADERSHIP, encode
from ..snapshots.recovery import restore_newest
from ..snapshots.state_hash import StateView, combine_hashes, digest, hash_all
from ..snapshots.store import SnapshotStore
from .lazy_states import LazyStates
from .to_builtins import to_builtins

if TYPE_CHECKING:
    from .log_source import LogSource
    from .state_index.index import StateIndex
    from .state_index.index_file import IndexMark
    from .state_index.writer import StateIndexWriter

OnProgress = Callable[[int, int], object]
"""(events folded, events to be folded in all)."""
_MIN_EVENTS_SAVED = 2
"""A snapshot is read as a whole, a mark only where it is looked at: so many intervals of marks are folded meanwhile."""


class ClusterMoment(msgspec.Struct, frozen=True):
    """The cluster as the log has it once the event at `offset` has been folded; -1: before the first."""

    offset: int
    state_hash: str
    hashes: dict[str, str]
    """Kind of role -> the hash of its states."""
    leaders: dict[str, Any]
    """Role -> its leader."""
    roles: dict[str, Any]
    """Address -> state, fit for JSON."""
    feature_level: int = FIRST_LEVEL
    """By whose rules the log goes there."""


def replica_at(
    source: LogSource, offset: int | None = None, on_progress: OnProgress | None = None
) -> Replica:
    """A replica of all roles that has folded the event at `offset`, and all before; by default, all there are now.

    Its states are decoded when they are asked for. Raises LogUnavailable, LogTruncated, ArchiveError.
    """
    return fold_to(source.log, offset, source.store, source.index, on_progress)


def state_at(
    log: EventLog,
    offset: int | None = None,
    store: SnapshotStore | None = None,
    index: StateIndex | None = None,
    on_progress: OnProgress | None = None,
) -> ClusterMoment:
    """The moment after the event at `offset`, or now. Takes, and raises, what `fold_to` does."""
    return cluster_moment(fold_to(log, offset, store, index, on_progress))


def fold_to(
    log: EventLog,
    offset: int | None = None,
    store: SnapshotStore | None = None,
    index: StateIndex | None = None,
    on_progress: OnProgress | None = None,
) -> Replica:
    """As `replica_at`: from the newest mark of the `index`, or a snapshot of the `store` where that is much nearer.

    The marks that it passes are left in the index; on the way from a snapshot, none. Raises LogUnavailable,
    LogTruncated.
    """
    tune_gc_for_replay()
    end = log.end() if offset is None else min(offset + 1, log.end())
    replica = all_roles()
    mark = None if index is None else index.restore(replica, end - 1)
    patience = 0 if mark is None or index is None else _MIN_EVENTS_SAVED * index.interval
    if store is not None and _has_between(store, replica.offset + patience, end):
        nearer = all_roles()
        restore_newest(nearer, log, store, at_most=end - 1)
        if nearer.offset > replica.offset:
            replica, index = nearer, None
    recorder = None if index is None else _recorder(index, replica, mark)
    start = replica.offset + 1
    for batch in read_to_end(log, start, end=end):
        if recorder is not None:
            recorder.fold(batch)
        else:
            for record in batch:
                replica.apply(record)
        if on_progress is not None:
            on_progress(replica.offset + 1 - start, end - start)
    if recorder is not None:
        recorder.on_offset_reached(end)
    return replica


def _recorder(index: StateIndex, replica: Replica, mark: IndexMark | None) -> StateIndexWriter:
    # Most commands about history need no index, and are spared SQLite.
    from .state_index.writer import StateIndexWriter

    return StateIndexWriter(index, replica, mark)


def _has_between(store: SnapshotStore, offset: int, end: int) -> bool:
    """Whether there is a snapshot behind the offset and below the end."""
    try:
        return any(offset < each < end for each in store.offsets())
    except CheckpointError:
        # `restore` tells of it, where nothing else helps.
        return offset < 0


def cluster_moment(known: StateView, addresses: Iterable[str] | None = None) -> ClusterMoment:
    """What a replica knows as data; `addresses`: only these states. The hashes are those of all."""
    leaders = to_builtins(known.leadership.leaders)
    wanted = known.states if addresses is None else addresses
    roles = {address: to_builtins(known.states[address]) for address in sorted(wanted)}
    hashes = role_hashes(known)
    return ClusterMoment(
        known.offset, hash_all(hashes), hashes, leaders, roles, known.leadership.feature_level
    )


def role_hashes(known: StateView) -> dict[str, str]:
    """Kind of role -> the hash of its states."""
    digests = [(address, digest(data)) for address, data in _encoded(known)]
    return combine_hashes([*digests, (LEADERSHIP, digest(encode(known.leadership)))])


def state_hash(known: StateView) -> str:
    """16 bytes in hexadecimal over all states and leaders; the offset does not count."""
    return hash_all(role_hashes(known))


def _encoded(known: StateView) -> Iterator[tuple[str, bytes]]:
    states = known.states
    for address in states:
        data = states.bytes_of(address) if isinstance(states, LazyStates) else None
        yield address, encode(states[address]) if data is None else data
