"""Hashes the states of a replica: the hash depends on the prefix of the log only, not on where or how it was folded.

Each address has the hash of its state's bytes, each kind of role the hash of its addresses. Most states are quiescent
and
remain the same object: only changed states are encoded and hashed again.
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
    """Returns the hash of one state's bytes."""
    return hashlib.blake2b(data, digest_size=_SIZE).digest()


def combine_hashes(digests: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Returns kind of role -> hash in hexadecimal, from (address, digest) of all states in any order."""
    of_kind: dict[str, hashlib.blake2b] = {}
    for role_address, value in sorted(digests):
        kind = kind_of(role_address)
        if kind not in of_kind:
            of_kind[kind] = hashlib.blake2b(digest_size=_SIZE)
        of_kind[kind].update(b"%b\0%b" % (role_address.encode(), value))
    return {kind: found.hexdigest() for kind, found in of_kind.items()}


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
    """Hashes one replica repeatedly, with a cache."""

    def __init__(self, replica: StateView) -> None:
        self._replica = replica
        self._known: dict[str, tuple[object, bytes]] = {}

    def hashes(self) -> dict[str, str]:
        """Returns kind of role (and `leadership`) -> hash of its states, in hexadecimal."""
        known = self._known
        for role_address, state in self._replica.states.items():
            last = known.get(role_address)
            if last is None or last[0] is not state:
                known[role_address] = (state, digest(encode(state)))
        digests = [(role_address, value) for role_address, (_, value) in known.items()]
        return combine_hashes([*digests, (LEADERSHIP, digest(encode(self._replica.leadership)))])
