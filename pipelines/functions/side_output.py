"""Side outputs: further streams of an operator, each with a tag of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..types import RecordType

T = TypeVar("T")


@dataclass(frozen=True)
class OutputTag(Generic[T]):
    """Names a side output. `output_type` is the type of its records, a Python type or one of `Types`; None: pickled."""

    name: str
    output_type: Any = None

    @property
    def record_type(self) -> RecordType:
        """Returns the record type of the side output."""
        return RecordType.of(self.output_type)
