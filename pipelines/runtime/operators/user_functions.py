"""Loads the user's functions, and calls them so that errors name them.

Only StreamTask processes and Spark's Python workers may load them: loading runs the job's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import length_hint
from typing import Any

from ....schemas.types import OperatorConfig
from ... import sentinels
from ...functions import RichFunction, RuntimeContext
from ...graph.key_groups import UnstableKey
from ...types import RecordTypeError
from ..common.failures import (
    RecordError,
    StateDiskError,
    StateTypeError,
    TaskError,
    UserCodeError,
    format_key,
)
from ..records.batch import Batch
from ..records.buffers import RecordTooLarge

Function = Callable[..., Any]


@contextmanager
def user_code(
    config: OperatorConfig, records: OrderedCalls | None = None, place: Callable[[], str] | None = None
) -> Iterator[None]:
    """Raises every exception from inside as UserCodeError of that operator.

    `records`: for a function that is called for each record, so that the error names the record; see `OrderedCalls`.
    `place`: for a function that is not called for a record, returns the timer or window that it is called for.
    """
    try:
        yield
    except (UserCodeError, StateTypeError, StateDiskError):
        raise
    except (Exception, SystemExit) as error:
        # A function that calls sys.exit() also fails its task with a reason.
        index = None if records is None else records.index
        key = None if records is None or index is None or records.keys is None else records.keys[index]
        failure = UserCodeError(config.name, config.location, index, None if key is None else format_key(key))
        failure.place = None if place is None else place()
        raise failure from error


@contextmanager
def placed(place: Callable[[], str]) -> Iterator[None]:
    """Adds this location to an error from inside that has no location yet."""
    try:
        yield
    except RecordError as error:
        if error.place is None:
            error.index, error.place = None, place()
        raise


@contextmanager
def came_from(record_of: Callable[[int], int] | None = None) -> Iterator[None]:
    """A context manager around emitted records. An error after this operator names a record of its output; this maps
    it to the record of the operator's own batch. None: unknown."""
    try:
        yield
    except RecordError as error:
        if error.index is not None:
            error.index = None if record_of is None else record_of(error.index)
        raise


class OrderedCalls:
    """Iterates over records and remembers the last one. Costs nothing per record."""

    def __init__(self, records: Batch | Sequence[Any]) -> None:
        self._records = records
        self._left: Iterator[Any] | None = None
        self.keys: Sequence[Any] | None = None
        """The key of each record, once they are known."""

    def __iter__(self) -> Iterator[Any]:
        """Starts with the first record, even if some were taken before."""
        records = self._records
        left = self._left = iter(records.values if isinstance(records, Batch) else records)
        return left

    def end(self) -> None:
        """Ends the calls: later errors belong to no single record."""
        self._left = None

    @property
    def index(self) -> int | None:
        """The index of the record that was taken last; None before the first and after the end."""
        if self._left is None:
            return None
        taken = len(self._records) - length_hint(self._left)
        return taken - 1 if taken else None


@contextmanager
def typed_by(config: OperatorConfig) -> Iterator[None]:
    """Raises a value that is not of its declared type, and a key without a stable form, as UserCodeError of the
    operator that returned or stores it."""
    try:
        yield
    except (RecordTypeError, UnstableKey) as error:
        # Detected after the user's function has returned: the error has the line of the operator.
        raise UserCodeError(config.name, config.location) from error.with_traceback(None)


@contextmanager
def within_limits(sender: OperatorConfig) -> Iterator[None]:
    """Raises UserCodeError for a value of another type, and TaskError for a record that is too large for a channel."""
    try:
        yield
    except RecordTypeError as error:
        raise UserCodeError(sender.name, sender.location) from error.with_traceback(None)
    except RecordTooLarge as error:
        raise TaskError(f"operator {sender.name!r}: {error}: send a reference to it instead") from error


def load(config: OperatorConfig) -> tuple[Any, ...]:
    """Returns the functions of an operator, with None for absent ones. Raises UserCodeError if they cannot be
    loaded."""
    with user_code(config):
        return load_code(config.code)


def load_code(code: bytes) -> tuple[Any, ...]:
    """Returns the functions that were pickled together; none for no code."""
    return tuple(sentinels.load_code(code)) if code else ()


def method_of(function: Any, name: str) -> Function:
    """Returns the callable: the method of a function that is a class of pipelines.functions, else the function
    itself."""
    if isinstance(function, RichFunction) and hasattr(function, name):
        return getattr(function, name)  # type: ignore[no-any-return]
    return function  # type: ignore[no-any-return]


def open_function(function: Any, context: RuntimeContext) -> Any:
    """Calls a rich function's own open(context), if it has one, and returns what that returns."""
    if not isinstance(function, type) and callable(opener := getattr(function, "open", None)):
        return opener(context)
    return None


def close_function(function: Any) -> Any:
    """Calls a rich function's own close(), if it has one, and returns what that returns."""
    if not isinstance(function, type) and callable(closer := getattr(function, "close", None)):
        return closer()
    return None
