"""Settings of the operator of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self

from ....schemas.types import ResourceProfile
from ...flink_names import advise
from ...functions import OutputTag
from ...graph.errors import ProgramError
from ...graph.stream_graph import ChainingStrategy
from ..checks import is_text, is_whole
from ..program import Program
from ..source_location import caller_location
from ..transformations import Physical


class OperatorSettings:
    """Settings of an operator. Each method returns the same stream."""

    _program: Program
    _id: int

    def name(self, name: str) -> Self:
        """Sets the name that commands and logs show."""
        if not is_text(name) or not name.strip():
            raise refusal("name", f"the name is {name!r}, not one or more characters")
        return self._set(name=name)

    def uid(self, uid: str) -> Self:
        """Fixes the operator's id, by which a changed program finds its state. The uid must be unique in the job."""
        if not is_text(uid):
            raise refusal("uid", "a uid cannot be empty")
        return self._set(uid=uid)

    def set_parallelism(self, parallelism: int) -> Self:
        """Sets the number of subtasks; by default it is that of the environment."""
        check_count("parallelism", parallelism, operator="set_parallelism")
        if parallelism > 1 and not self._operator.parallel:
            raise refusal("set_parallelism", f"{self._operator.name} cannot have more than 1 subtask")
        return self._set(parallelism=parallelism)

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Sets the number of key groups of the operator's state. It limits the parallelism, and cannot change later."""
        check_count("maximum parallelism", max_parallelism, operator="set_max_parallelism")
        return self._set(max_parallelism=max_parallelism)

    def slot_sharing_group(self, group: str | None) -> Self:
        """Puts the operator into a group whose subtasks share slots; None: each subtask gets a slot of its own.

        By default the group is that of all inputs if they have the same one, else "default".
        """
        if group is not None and not (is_text(group) and "/" not in group):
            raise refusal("slot_sharing_group", f"the group is {group!r}: give a name without '/', or None")
        return self._set(slot_sharing_group=group or "")

    def co_location_group(self, group: str) -> Self:
        """Puts the operator into a group whose subtasks of the same index always run in the same slot.

        The operators must be in one slot sharing group and have the same parallelism (Flink's CoLocationGroup).
        """
        if not is_text(group):
            raise refusal("co_location_group", f"the group is {group!r}: give a name")
        return self._set(co_location_group=group)

    def set_resources(
        self,
        *,
        cpu_cores: float = 0.0,
        heap_memory_mb: int = 0,
        direct_memory_mb: int = 0,
        network_memory_mb: int = 0,
        managed_memory_mb: int = 0,
        **extended: float,
    ) -> Self:
        """Sets the least resources that a slot must offer to a subtask of this operator, such as cpu_cores=0.5 or
        gpu=1."""
        profile = ResourceProfile(
            cpu_cores=cpu_cores,
            heap_memory_mb=heap_memory_mb,
            direct_memory_mb=direct_memory_mb,
            native_memory_mb=0,
            network_memory_mb=network_memory_mb,
            managed_memory_mb=managed_memory_mb,
            extended_resources=extended,
        )
        return self._set(resources=profile)

    def disable_chaining(self) -> Self:
        """Makes the operator a task of its own."""
        return self._set(chaining=ChainingStrategy.NEVER)

    def start_new_chain(self) -> Self:
        """Does not chain the operator with its input."""
        return self._set(chaining=ChainingStrategy.HEAD)

    @property
    def _operator(self) -> Physical:
        return self._program.physical(self._id)

    def _set(self, **changes: Any) -> Self:
        self._program.change(self._id, **changes)
        return self


class OnlyInPrograms:
    """Base of objects that functions cannot use at run time: pickling one raises an error."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} exists only in the program that builds the job, not in its tasks"
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name)


def refusal(step: str, reason: str) -> ProgramError:
    """Returns the error for a wrong call of a step."""
    return ProgramError(reason, operator=step, location=caller_location())


def check_tag(step: str, tag: object) -> None:
    """Raises ProgramError if the value is no side output's tag."""
    if not isinstance(tag, OutputTag) or not is_text(tag.name):
        raise refusal(step, f"expected an OutputTag with a name, not {tag!r}")


def check_count(what: str, count: object, *, operator: str) -> None:
    """Raises ProgramError if the count is not an integer of 1 or more."""
    if not is_whole(count, 1):
        raise refusal(operator, f"the {what} is {count!r}, not an integer of 1 or more")
