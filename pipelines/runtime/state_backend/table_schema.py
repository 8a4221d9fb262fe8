"""The schema of the entries of a table, written once before them, so that they can be read when a type has changed.

The message is of kind SCHEMA and has the fingerprint of its entries. In the changelog it precedes the first entries of
an attempt with this fingerprint. Each file of all state has it, too.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ..common.failures import StateTypeError
from ..records.type_evolution import TypeMismatch, describe_layout, from_layout
from .changelog import ChangeKind, ChangelogMessage, rewrite

TTL_SUFFIX: Final = " with a time to live"


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schema of one table, with types in the form of `type_evolution.to_layout`."""

    kind: str
    """value, reduction, aggregation, list, map or timer; of operator state: split list or union list."""
    key: Any
    """None: the state has no keys."""
    item: Any = None
    value: Any = None
    namespaced: bool = False
    expires: bool = False
    """Whether the state has a time to live: its entries have the time of their last access."""

    @property
    def fingerprint(self) -> int:
        """The same value for equal layouts."""
        return zlib.crc32(msgspec.json.encode(self))

    def __str__(self) -> str:
        if self.item is not None:
            of = f" of {_in_words(self.item)} to {_in_words(self.value)}"
        else:
            of = "" if self.value is None else f" of {_in_words(self.value)}"
        ttl = TTL_SUFFIX if self.expires else ""
        by = "" if self.key is None else f" by {_in_words(self.key)}"
        return f"{self.kind}{of}{ttl}{by}"

    def messages(self, table: str) -> Iterator[bytes]:
        """Yields the messages that describe the entries with this fingerprint."""
        return rewrite(
            ChangelogMessage(ChangeKind.SCHEMA, table, self.fingerprint, msgspec.json.encode(self))
        )

    @classmethod
    def from_message(cls, message: ChangelogMessage) -> TableSchema:
        """Decodes a message of kind SCHEMA. Raises ValueError."""
        return msgspec.json.decode(message.payload, type=cls)


def create_mismatch_error(
    state: str, operator: str, before: str, declared: TableSchema, why: TypeMismatch
) -> StateTypeError:
    """Returns the error for state that cannot be read as the type that the program declares. `before`: how it was
    written."""
    return StateTypeError(
        f"state {state!r} of operator {operator!r} was written {before} and is declared as a {declared}: {why};"
        " go back to that type, or give the state, or the operator's uid, a new name"
    )


def _in_words(layout: Any) -> str:
    return describe_layout(from_layout(layout))
