"""The hash of what a replica knows: the same for the same prefix of the log, wherever and however it was folded.

Each address has the hash of its state's bytes, each kind of role that of its addresses. Most states are at rest, and
the same object as the last time: only what has changed since is written and hashed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from ..core.leadership import LeadershipState
from ..core.role import kind_of
from .encoding import LEADERSHIP, encode

_SIZE = 16


def digest(data: bytes) -> bytes:
    """Of the bytes of one state."""
    return hashlib.blake2b(data, digest_size=_SIZE).digest()


def combine_hashes(digests: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Kind of role -> hash, in hexadecimal, of (address, digest) of all states; the order does not matter."""
    of_kind: dict[str, hashlib.blake2b] = {}
    for role_address, value in sorted(digests):
        kind = kind_of(role_address)
        if kind not in of_kind:
            of_kind[kind] = hashlib.blake2b(digest_size=_SIZE)
        of_kind[kind].update(b"%b\0%b" % (role_address.encode(), value))
    return {kind: found.hexdigest() for kind, found in of_kind.items()}


def hash_all(hashes: Mapping[str, str]) -> str:
    """One hash of them all."""
    return digest(repr(sorted(hashes.items())).encode()).hex()


class StateView(Protocol):
    """What a replica knows behind an offset."""

    @property
    def offset(self) -> int:
        """Of the last event."""
        ...

    @property
    def states(self) -> Mapping[str, Any]:
        """By address."""
        ...

    @property
    def leadership(self) -> LeadershipState:
        """Who leads what."""
        ...


class StateHasher:
    """Hashes one replica again and again."""

    def __init__(self, replica: StateView) -> None:
        self._replica = replica
        self._known: dict[str, tuple[object, bytes]] = {}

    def hashes(self) -> dict[str, str]:
        """Kind of role (and `leadership`) -> the hash of its states, in hexadecimal."""
        known = self._known
        for role_address, state in self._replica.states.items():
            last = known.get(role_address)
            if last is None or last[0] is not state:
                known[role_address] = (state, digest(encode(state)))
        digests = [(each, value) for each, (_, value) in known.items()]
        return combine_hashes([*digests, (LEADERSHIP, digest(encode(self._replica.leadership)))])
