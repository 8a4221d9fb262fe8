"""Maps addresses to states and decodes a state only at its first access.

A long log has many ended jobs. A hash needs only their bytes, so most of them are never decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

from ..core.role import kind_of
from ..snapshots.encoding import decode

_NOT_DECODED: Final = object()


class LazyStates(MutableMapping[str, Any]):
    """The states of a replica. Access to a state raises msgspec.MsgspecError if its bytes are invalid."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """`stored`: address -> the state's bytes (snapshots/encoding.py)."""
        self.stored = stored
        self._states: dict[str, Any] = dict.fromkeys(stored, _NOT_DECODED)
        self._changed: set[str] = set()

    def bytes_of(self, role_address: str) -> bytes | None:
        """Returns the bytes of a state that has not changed since it was stored; None for others."""
        return None if role_address in self._changed else self.stored.get(role_address)

    def __getitem__(self, role_address: str) -> Any:
        state = self._states[role_address]
        if state is _NOT_DECODED:
            state = self._states[role_address] = decode(kind_of(role_address), self.stored[role_address])
        return state

    def get(self, role_address: str, default: Any = None) -> Any:
        # Like __getitem__, without an exception for each new address.
        return self[role_address] if role_address in self._states else default

    def __setitem__(self, role_address: str, state: Any) -> None:
        self._states[role_address] = state
        self._changed.add(role_address)

    def __delitem__(self, role_address: str) -> None:
        del self._states[role_address]
        self._changed.add(role_address)

    def __contains__(self, role_address: object) -> bool:
        return role_address in self._states

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)
