"""What the checks of a source and of a sink share: the error, calls with a limit of time, and comparing records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from ...infra import threads
from ..runtime.common.failures import TaskError, UserCodeError
from ..sentinels import dump_code, load_code

T = TypeVar("T")


class ContractBroken(AssertionError):
    """A source or a sink breaks its contract. The text is one line."""


class Contract:
    """The contract of one object."""

    def __init__(self, what: object, timeout_s: float) -> None:
        self.name = type(what).__name__
        self.timeout_s = timeout_s

    def broken(self, why: str) -> ContractBroken:
        return ContractBroken(f"{self.name}: {why}")

    def copy(self, value: T) -> Callable[[], T]:
        """Returns a function that unpickles a copy, as each attempt of a task does. Raises ContractBroken."""
        try:
            data = dump_code((value,))
            load_code(data)
        except Exception as error:
            raise self.broken(f"it cannot be pickled: {_one_line(error)}") from error
        return lambda: load_code(data)[0]

    def call(self, what: str, function: Callable[[], T], when: str = "") -> T:
        """Calls a function. Raises ContractBroken if it fails, or does not return in time."""
        behind = f" ({when})" if when else ""
        result = _start(what, function)
        if not wait([result], self.timeout_s).done:
            raise self.broken(f"{what} did not return within {self.timeout_s:g} s{behind}")
        error = result.exception()
        if isinstance(error, UserCodeError) and error.__cause__ is not None:
            raise self.broken(f"{what} raised {_one_line(error.__cause__)}{behind}") from error
        if isinstance(error, TaskError):
            raise self.broken(f"{str(error).partition('): ')[2] or error}{behind}") from error
        if error is not None:
            raise self.broken(f"{what} raised {_one_line(error)}{behind}") from error
        return result.result()

    def call_together(self, what: str, functions: Sequence[Callable[[], object]], when: str) -> list[str]:
        """Calls functions at the same time. Returns the error of each, empty for none.

        Raises ContractBroken if one does not return in time.
        """
        results = [_start(what, function) for function in functions]
        if wait(results, self.timeout_s).not_done:
            raise self.broken(f"{what} did not return within {self.timeout_s:g} s ({when})")
        errors = [result.exception() for result in results]
        return ["" if error is None else _one_line(error.__cause__ or error) for error in errors]

    def compare(self, found: Sequence[Any], expected: Sequence[Any], when: str, *, unit: str) -> None:
        """Raises ContractBroken if records are missing, or there are too many."""
        missing, surplus = _difference(expected, found), _difference(found, expected)
        if missing:
            raise self.broken(f"{_records(missing, expected)} lost {when}{unit}")
        if surplus:
            doubled = "double" if surplus[0] in expected else "not expected"
            raise self.broken(f"{_records(surplus, found)} {doubled} {when}{unit}")


def _start(what: str, function: Callable[[], T]) -> Future[T]:
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threads.Thread(target=run, name=f"check {what}").start()
    return result


def _difference(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Returns the records of the first that the second has not, or not as often."""
    left = list(second)
    more = []
    for record in first:
        try:
            left.remove(record)
        except ValueError:
            more.append(record)
    return more


def _records(some: Sequence[Any], of: Sequence[Any]) -> str:
    are = "record, " if len(some) == 1 else "records, such as "
    text = " ".join(repr(some[0]).split())
    return f"{len(some)} of {len(of)} {are}{text[:100]}, {'is' if len(some) == 1 else 'are'}"


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
