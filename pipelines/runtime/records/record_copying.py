"""Copies records so that an operator may change the records that it receives.

Records are passed on within a task uncopied. If two places would hold one record (several consumers of one output,
several windows, state and the record emitted from it), each gets its own copy. Otherwise the effect of a change in
place would depend on chaining and on batch boundaries. Records of immutable types are shared, at no cost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from ...types import RecordType

RecordCopier = Callable[[Any], Any]

_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


def create_copier(record_type: RecordType) -> RecordCopier | None:
    """Returns a function that copies records; None if they can be shared. Loads the classes of the type."""
    return None if record_type.immutable else copy_record


def copy_record(value: Any) -> Any:
    """Returns a copy that shares no mutable object. Raises any error of deepcopy for an object that cannot be
    copied."""
    return value if is_atom(value) else copy.deepcopy(value)


def is_atom(value: Any) -> bool:
    """Whether a record is a plain immutable value, or a tuple of them."""
    kind = type(value)
    return kind in _ATOMS or (kind is tuple and _ATOMS.issuperset(map(type, value)))
