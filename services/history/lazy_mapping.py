"""A map whose values are decoded at their first access.

A long log has many ended jobs. Most of what is stored about them is never decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final, Generic, Self, TypeVar

T = TypeVar("T")
_NOT_DECODED: Final[Any] = object()


class LazyMapping(MutableMapping[str, T], Generic[T]):
    """Access to a value raises msgspec.MsgspecError if its bytes are invalid."""

    def __init__(self, stored: Mapping[str, bytes], decode: Callable[[str, bytes], T]) -> None:
        """`decode` gets a key and its bytes."""
        self.stored = stored
        self._decode = decode
        self._values: dict[str, T] = dict.fromkeys(stored, _NOT_DECODED)
        self._changed: set[str] = set()

    def bytes_of(self, key: str) -> bytes | None:
        """Returns the bytes of a value that has not changed since it was stored; None for others."""
        return None if key in self._changed else self.stored.get(key)

    def copy(self) -> Self:
        """Returns an independent map with the same values."""
        made = self.__class__.__new__(self.__class__)
        made.stored, made._decode = self.stored, self._decode
        made._values, made._changed = self._values.copy(), self._changed.copy()
        return made

    def __getitem__(self, key: str) -> T:
        value = self._values[key]
        if value is _NOT_DECODED:
            value = self._values[key] = self._decode(key, self.stored[key])
        return value

    def get(self, key: str, default: Any = None) -> Any:
        # Like __getitem__, without an exception for each new key.
        return self[key] if key in self._values else default

    def __setitem__(self, key: str, value: T) -> None:
        self._values[key] = value
        self._changed.add(key)

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._changed.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
