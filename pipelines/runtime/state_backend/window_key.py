"""The state of a window of a key: keyed state whose key also has the window, in the key group of the key alone."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ...graph.key_groups import key_group_of
from ...types import ClassOf, RecordType, Scalar

_INT: Final = Scalar("int")


class WindowKey(NamedTuple):
    """A key, and the bounds of one of its windows (ms)."""

    key: Any
    start: int
    end: int


def window_key_type(key_type: RecordType) -> RecordType:
    """Returns the record type of the windows of keys of this type."""
    return ClassOf(
        WindowKey.__name__, "named_tuple", (("key", key_type), ("start", _INT), ("end", _INT)), WindowKey
    )


def is_window_key_type(key_type: RecordType) -> bool:
    """Whether keys of this type are WindowKeys."""
    return isinstance(key_type, ClassOf) and key_type.source is WindowKey


def group_of(key: Any, max_parallelism: int) -> int:
    """Returns the key group of a key, or of the key of a WindowKey. Raises UnstableKey."""
    return key_group_of(key.key if type(key) is WindowKey else key, max_parallelism)
