"""Side outputs: further streams of an operator, each with a tag of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..types import RecordType

T = TypeVar("T")


@dataclass(frozen=True)
class OutputTag(Generic[T]):
    """Names a side output. `output_type` is the type of its records, a Python type or one of `Types`; None: pickled."""

    name: str
    output_type: Any = None

    if TYPE_CHECKING:
        # A class gives type checkers the type of the records, too. Other forms, such as `int | None`, do not.
        @overload
        def __init__(self, name: str, output_type: type[T]) -> None: ...
        @overload
        def __init__(self: OutputTag[Any], name: str, output_type: object = None) -> None: ...
        def __init__(self, name: str, output_type: object = None) -> None: ...

    @property
    def record_type(self) -> RecordType:
        """Returns the record type of the side output."""
        return RecordType.of(self.output_type)
