"""The transformations of a program, by id, in program order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

from ..functions import CheckpointedFunction
from ..graph.errors import ProgramError
from ..types import PICKLED, RecordType
from .executor import JobClient
from .transformations import Partition, Physical, SideOutput, Transformation, Union

Made = TypeVar("Made", bound=Transformation)


class Program:
    """The transformations of one environment."""

    def __init__(self, collect: Callable[[str], JobClient] | None = None) -> None:
        """`collect`: executes the program as a job of the name, where its records can be collected."""
        self.collect = collect
        self.transformations: dict[int, Transformation] = {}
        self.pending: list[int] = []
        """The transformations of the next job that become operators, by id."""

    def add(self, kind: type[Made], **fields: Any) -> Made:
        """Creates and adds a transformation."""
        made = kind(id=len(self.transformations) + 1, **fields)
        _check_operator_state(made)
        self.transformations[made.id] = made
        if isinstance(made, Physical):
            self.pending.append(made.id)
        return made

    def withdraw_unread(self, transformation_id: int) -> None:
        """Leaves out of the next job what a transformation is made of and nothing else reads. A later step that reads
        it brings it back."""
        made_of = self._made_of([transformation_id])
        read = self._made_of(each for each in self.pending if each not in made_of)
        self.pending = [each for each in self.pending if each not in made_of or each in read]

    def _made_of(self, transformation_ids: Iterable[int]) -> set[int]:
        """Returns the transformations and all before them."""
        found: set[int] = set()
        left = list(transformation_ids)
        while left:
            if (each := left.pop()) not in found:
                found.add(each)
                left += self.transformations[each].inputs
        return found

    def physical(self, transformation_id: int) -> Physical:
        """Returns the current copy of a transformation that becomes an operator."""
        found = self.transformations[transformation_id]
        assert isinstance(found, Physical)
        return found

    def change(self, transformation_id: int, **changes: Any) -> None:
        """Replaces a transformation by a changed copy."""
        self.transformations[transformation_id] = dataclasses.replace(
            self.transformations[transformation_id], **changes
        )

    def record_type(self, transformation_id: int) -> RecordType:
        """Returns the type of the records that a transformation emits."""
        found = self.transformations[transformation_id]
        while isinstance(found, (Partition, Union)):
            found = self.transformations[found.inputs[0]]
        match found:
            case SideOutput(record_type=of):
                return of
            case Physical(output_type=of):
                return of or PICKLED
            case _:
                raise TypeError(f"{type(found).__name__} has no records")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a StreamExecutionEnvironment exists only in the program that builds the job")


def _check_operator_state(made: Transformation) -> None:
    if not isinstance(made, Physical) or made.traits.operator_state:
        return
    functions = [
        part for function in made.functions() for part in (function, *getattr(function, "parts", ()))
    ]
    if any(isinstance(function, CheckpointedFunction) for function in functions):
        raise ProgramError(
            "a CheckpointedFunction has operator state, which only map, flat_map, filter, process and foreach on"
            " streams without keys have: use keyed or broadcast state",
            operator=made.step,
            location=made.location,
        )
