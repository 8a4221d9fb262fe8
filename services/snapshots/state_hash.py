"""Hashes the states of a replica: the hash depends on the prefix of the log only, not on where or how it was folded.

Each address has the hash of its state's bytes; a role with one instance, whose state grows with the cluster, has the
sum of the hashes of its pieces (state_delta.py). The hash of a kind of role is the sum of the hashes of its addresses.
So what has not changed costs little, such as 300,000 ended jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..core.role import DISPATCHER, RESOURCE_MANAGER, kind_of
from .encoding import LEADERSHIP, decode, encode
from .state_delta import Key, changes, entry_differences, whole_pieces

_SIZE = 16


def digest(data: bytes) -> bytes:
    """Returns the hash of one state's bytes."""
    return hashlib.blake2b(data, digest_size=_SIZE).digest()


_IN_PIECES: Final = frozenset({DISPATCHER, RESOURCE_MANAGER})
_MASK: Final = (1 << 8 * _SIZE) - 1


def digest_state(role_address: str, state: Any, data: bytes | None = None) -> bytes:
    """Returns the hash of one state; `data`: its bytes, if the caller has them."""
    if role_address not in _IN_PIECES:
        return digest(encode(state) if data is None else data)
    return _to_bytes(_sum_of(changes(None, state)))


def digest_bytes(role_address: str, data: bytes) -> bytes:
    """Returns the hash of one state from its bytes. Raises msgspec.MsgspecError."""
    return (
        digest_state(role_address, decode(role_address, data)) if role_address in _IN_PIECES else digest(data)
    )


def _sum_of(pieces: Mapping[Key, bytes | None] | Mapping[Key, bytes]) -> int:
    total = 0
    for (field, key), data in pieces.items():
        if data is not None:
            head = b"%b\0%d\0%b" % (field.encode(), len(key), key)
            total += int.from_bytes(digest(head + data), "big")
    return total


def _to_bytes(total: int) -> bytes:
    return (total & _MASK).to_bytes(_SIZE, "big")


def combine_hashes(digests: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Returns kind of role -> hash in hexadecimal, from (address, digest) of all states in any order."""
    sums = dict[str, int]()
    for role_address, value in digests:
        kind = kind_of(role_address)
        sums[kind] = sums.get(kind, 0) + _summand(role_address, value)
    return {kind: _to_bytes(total).hex() for kind, total in sums.items()}


def _summand(role_address: str, value: bytes) -> int:
    return int.from_bytes(digest(b"%b\0%b" % (role_address.encode(), value)), "big")


def hash_all(hashes: Mapping[str, str]) -> str:
    """Returns one hash of them all."""
    return digest(repr(sorted(hashes.items())).encode()).hex()


class StateView(Protocol):
    """The states of a replica after an offset."""

    @property
    def offset(self) -> int:
        """The offset of the last event."""
        ...

    @property
    def states(self) -> Mapping[str, Any]:
        """The states by address."""
        ...

    @property
    def leadership(self) -> LeadershipState:
        """The leadership."""
        ...


class StateHasher:
    """Hashes the states of a replica once."""

    def __init__(self, view: StateView) -> None:
        self._view = view

    def hashes(self) -> dict[str, str]:
        """Returns kind of role (and `leadership`) -> hash of its states, in hexadecimal."""
        digests = [(address, digest_state(address, state)) for address, state in self._view.states.items()]
        return combine_hashes([*digests, (LEADERSHIP, digest(encode(self._view.leadership)))])


class RepeatedStateHasher:
    """Hashes the states of one replica repeatedly: each time costs O(states that have changed)."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._changed = replica.follow_changes()
        self._summands: dict[str, int] = {}
        self._sums: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._in_pieces: dict[str, tuple[Any, int]] = {}
        """The last state of a role in pieces, and the sum of the entries of its large maps."""

    def hashes(self) -> dict[str, str]:
        """Returns kind of role (and `leadership`) -> hash of its states, in hexadecimal."""
        states, summands = self._replica.states, self._summands
        for role_address in self._changed:
            kind = kind_of(role_address)
            before = summands.pop(role_address, None)
            count, total = self._counts.get(kind, 0), self._sums.get(kind, 0)
            if before is not None:
                count, total = count - 1, total - before
            if role_address in states:
                after = _summand(role_address, self._digest(role_address, states[role_address]))
                summands[role_address] = after
                count, total = count + 1, total + after
            self._counts[kind], self._sums[kind] = count, total
        self._changed.clear()
        found = {kind: _to_bytes(total).hex() for kind, total in self._sums.items() if self._counts[kind]}
        return {**found, **combine_hashes([(LEADERSHIP, digest(encode(self._replica.leadership)))])}

    def _digest(self, role_address: str, state: Any) -> bytes:
        if role_address not in _IN_PIECES:
            return digest(encode(state))
        before, total = self._in_pieces.get(role_address, (None, 0))
        for key, old, new in entry_differences(before, state):
            total += _sum_of({key: new}) - _sum_of({key: old})
        self._in_pieces[role_address] = state, total
        return _to_bytes(total + _sum_of(whole_pieces(state)))
