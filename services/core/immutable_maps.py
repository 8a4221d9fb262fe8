"""Functions on immutables.Map."""

from __future__ import annotations

from typing import TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")


def delete_key(index: Map[K, V], key: K) -> Map[K, V]:
    """Returns the map without the key; the same object if the key is absent."""
    return index.delete(key) if key in index else index
