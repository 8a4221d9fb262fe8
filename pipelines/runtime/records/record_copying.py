"""Who may change a record: an operator that it was given to, for it is given to nobody else.

Records are handed on within a task as they are. Where one would be held in two places (several consumers of one output,
several windows, state and what is emitted of it), each gets a copy of its own; otherwise what a function changes in
place would be seen or not, depending on how operators are chained and records cut into batches. Records of types that
nobody can change are shared, at no cost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

from ...types import RecordType

RecordCopier = Callable[[Any], Any]

_ATOMS: Final = frozenset({str, int, float, bool, bytes, type(None)})


def create_copier(record_type: RecordType) -> RecordCopier | None:
    """What makes copies of records; None where they can be shared. Loads the classes of the type."""
    return None if record_type.immutable else copy_record


def copy_record(value: Any) -> Any:
    """A copy that shares nothing that can be changed. Raises what deepcopy raises for what cannot be copied."""
    kind = type(value)
    if kind in _ATOMS or (kind is tuple and _ATOMS.issuperset(map(type, value))):
        return value
    return copy.deepcopy(value)
