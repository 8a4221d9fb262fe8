"""The state of every role at any offset, from the log alone.

`state_hash` is the same for the same prefix of the log, on every machine and however the log was read; `hashes` are
those that StateHash tells of (snapshots/hashing.py).
"""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map

from ..log import EventLog
from ..log.event_log import read_to_end
from ..replica import Replica, spare_the_collector
from ..snapshots.hashing import Knowledge, StateHasher, whole
from ..snapshots.restoring import restore
from ..snapshots.store import SnapshotStore
from ..snapshots.taking import all_roles


class Moment(msgspec.Struct, frozen=True):
    """The cluster as the log has it once the event at `offset` has been folded; -1: before the first."""

    offset: int
    state_hash: str
    hashes: dict[str, str]
    """Kind of role -> the hash of its states."""
    leaders: dict[str, Any]
    """Role -> its leader."""
    roles: dict[str, Any]
    """Address -> state, fit for JSON."""


def state_at(log: EventLog, offset: int | None = None, store: SnapshotStore | None = None) -> Moment:
    """The moment after the event at `offset`, or now; begins, and raises, as `replica_at`."""
    return moment(replica_at(log, offset, store))


def replica_at(log: EventLog, offset: int | None = None, store: SnapshotStore | None = None) -> Replica:
    """The states after the event at `offset`, or now; from the newest snapshot before it, where there is a `store`.

    Raises LogUnavailable, LogTruncated.
    """
    spare_the_collector()
    replica = all_roles()
    if store is not None:
        restore(replica, log, store, at_most=offset)
    for batch in read_to_end(log, replica.offset + 1, end=None if offset is None else offset + 1):
        for record in batch:
            replica.apply(record)
    return replica


def moment(known: Knowledge) -> Moment:
    """What a replica knows as data."""
    leaders = as_data(known.leadership.leaders)
    roles = {address: as_data(known.states[address]) for address in sorted(known.states)}
    hashes = StateHasher(known).hashes()
    return Moment(known.offset, whole(hashes), hashes, leaders, roles)


def state_hash(known: Knowledge) -> str:
    """16 bytes in hexadecimal over all states and leaders; the offset does not count."""
    return whole(StateHasher(known).hashes())


def as_data(value: object) -> Any:
    """Any state as dicts, lists, texts and numbers, with keys sorted; bytes in base64."""
    return _sorted(msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain))


def _plain(value: object) -> Any:
    if isinstance(value, Map):
        return {_key(key): each for key, each in value.items()}
    raise TypeError(f"a state holds {type(value).__name__}, which is no data")


def _key(key: object) -> str:
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return {key: _sorted(value[key]) for key in sorted(value, key=_natural)}
        case list():
            return [_sorted(each) for each in value]
        case _:
            return value


def _natural(key: str) -> tuple[int, str]:
    """Numbers in their own order, before texts."""
    return (int(key), "") if key.isdecimal() else (1 << 62, key)
