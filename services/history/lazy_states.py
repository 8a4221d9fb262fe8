"""Maps addresses to states. A hash needs only the bytes of states, so most of them are never decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.role import kind_of
from ..snapshots.encoding import decode
from .lazy_mapping import LazyMapping


class LazyStates(LazyMapping[Any]):
    """The states of a replica."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """`stored`: address -> the state's bytes (snapshots/encoding.py)."""
        super().__init__(stored, _decode)


def _decode(role_address: str, data: bytes) -> Any:
    return decode(kind_of(role_address), data)
