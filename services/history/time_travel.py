"""The state of every role at any offset, from the log alone.

`state_hash` is the same for the same prefix of the log, on every machine and however the log was read. `hashes` are the
hashes of StateHash events (snapshots/state_hash.py).

A replica starts from the nearest mark of the history index or snapshot of the cluster before the offset, and folds the
rest. The result does not depend on the start.
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
from ..snapshots.state_hash import StateView, combine_hashes, digest, digest_bytes, digest_state, hash_all
from ..snapshots.store import SnapshotStore
from .lazy_states import LazyStates
from .to_builtins import to_builtins

if TYPE_CHECKING:
    from .log_source import LogSource
    from .state_index.index import RestoredMark, StateIndex
    from .state_index.writer import StateIndexWriter

OnProgress = Callable[[int, int], object]
"""(events folded, events to be folded in all)."""
MIN_MARKS_SAVED = 2
"""A snapshot is used instead of a mark only if it saves this many intervals: only marks are decoded lazily."""


class ClusterMoment(msgspec.Struct, frozen=True):
    """The state of the cluster after the event at `offset`; -1: before the first event."""

    offset: int
    state_hash: str
    hashes: dict[str, str]
    """Kind of role -> the hash of its states."""
    leaders: dict[str, Any]
    """Role -> its leader."""
    roles: dict[str, Any]
    """Address -> the state as plain data."""
    feature_level: int = FIRST_LEVEL
    """The feature level of the cluster."""


def replica_at(
    source: LogSource, offset: int | None = None, on_progress: OnProgress | None = None
) -> Replica:
    """Returns a replica of all roles after the event at `offset`; by default, after the last event.

    Its states are decoded at their first access. Raises LogUnavailable, LogTruncated, ArchiveError.
    """
    return fold_to(source.log, offset, source.store, source.index, on_progress)


def state_at(
    log: EventLog,
    offset: int | None = None,
    store: SnapshotStore | None = None,
    index: StateIndex | None = None,
    on_progress: OnProgress | None = None,
) -> ClusterMoment:
    """Returns the state after the event at `offset`, or now. Arguments and errors as `fold_to`."""
    return cluster_moment(fold_to(log, offset, store, index, on_progress))


def fold_to(
    log: EventLog,
    offset: int | None = None,
    store: SnapshotStore | None = None,
    index: StateIndex | None = None,
    on_progress: OnProgress | None = None,
) -> Replica:
    """Like `replica_at`: from the newest mark of the `index`, or from a snapshot of the `store` that is much nearer.

    From a mark on, it writes new marks into the index. Raises LogUnavailable, LogTruncated.
    """
    tune_gc_for_replay()
    end = log.end() if offset is None else min(offset + 1, log.end())
    replica = all_roles()
    mark = None if index is None else index.restore(replica, end - 1)
    patience = 0 if mark is None or index is None else MIN_MARKS_SAVED * index.interval
    if store is not None and has_snapshot_between(store, replica.offset + patience, end):
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


def _recorder(index: StateIndex, replica: Replica, mark: RestoredMark | None) -> StateIndexWriter:
    from .state_index.writer import StateIndexWriter

    return StateIndexWriter(index, replica, mark)


def has_snapshot_between(store: SnapshotStore, offset: int, end: int) -> bool:
    """Returns whether there is a snapshot between the offset and the end."""
    try:
        return any(offset < stored < end for stored in store.offsets())
    except CheckpointError:
        # `restore_newest` reports the error if there is no mark.
        return offset < 0


def cluster_moment(known: StateView, addresses: Iterable[str] | None = None) -> ClusterMoment:
    """Returns the states of a replica as data; `addresses`: only these. The hashes are over all states."""
    leaders = to_builtins(known.leadership.leaders)
    wanted = known.states if addresses is None else addresses
    roles = {address: to_builtins(known.states[address]) for address in sorted(wanted)}
    hashes = role_hashes(known)
    return ClusterMoment(
        known.offset, hash_all(hashes), hashes, leaders, roles, known.leadership.feature_level
    )


def role_hashes(known: StateView) -> dict[str, str]:
    """Returns the kind of a role -> the hash of its states, sorted: the order of the states depends on where the fold
    began."""
    digests = _digests(known)
    return dict(sorted(combine_hashes([*digests, (LEADERSHIP, digest(encode(known.leadership)))]).items()))


def state_hash(known: StateView) -> str:
    """Returns a hash of all states and leaders, 16 bytes in hexadecimal. It does not include the offset."""
    return hash_all(role_hashes(known))


def _digests(known: StateView) -> Iterator[tuple[str, bytes]]:
    states = known.states
    for address in states:
        data = states.bytes_of(address) if isinstance(states, LazyStates) else None
        yield (
            address,
            digest_state(address, states[address]) if data is None else digest_bytes(address, data),
        )
