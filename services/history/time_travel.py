"""The state of every role at any offset, from the log alone.

`state_hash` is the same for the same prefix of the log, on every machine and however the log was read.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from immutables import Map

from ..log import EventLog
from ..replica import Replica
from .fold import Fold


class Moment(msgspec.Struct, frozen=True):
    """The cluster as the log has it once the event at `offset` has been folded; -1: before the first."""

    offset: int
    state_hash: str
    leaders: dict[str, Any]
    """Role -> its leader."""
    roles: dict[str, Any]
    """Address -> state, fit for JSON."""


def state_at(log: EventLog, offset: int | None = None) -> Moment:
    """The moment after the event at `offset`, or now. Raises LogUnavailable, LogTruncated."""
    fold = Fold()
    for _ in fold.read(log, None if offset is None else offset + 1):
        pass
    return moment(fold.replica)


def moment(replica: Replica) -> Moment:
    """The replica's states as data."""
    leaders = as_data(replica.leadership.leaders)
    roles = {address: as_data(replica.states[address]) for address in sorted(replica.states)}
    return Moment(replica.offset, _hash({"leaders": leaders, "roles": roles}), leaders, roles)


def state_hash(replica: Replica) -> str:
    """16 bytes in hexadecimal over all states and leaders; the offset does not count."""
    return moment(replica).state_hash


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


def _hash(data: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(data), digest_size=16).hexdigest()
