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
from ...types import RecordTypeError
from ..common.failures import RecordError, StateTypeError, UserCodeError, format_key
from ..records.batch import Batch

Function = Callable[..., Any]


@contextmanager
def user_code(
    config: OperatorConfig, records: OrderedCalls | None = None, place: Callable[[], str] | None = None
) -> Iterator[None]:
    """Whatever is raised inside is raised as UserCodeError of that operator.

    `records`: where the function is called for each, so that the error says for which; see `OrderedCalls`. `place`:
    where the function is called for no record, which timer or window it is called for.
    """
    try:
        yield
    except (UserCodeError, StateTypeError):
        raise
    except (Exception, SystemExit) as error:
        # A function that calls sys.exit() ends its task with a reason, too.
        index = None if records is None else records.index
        key = None if records is None or index is None or records.keys is None else records.keys[index]
        failure = UserCodeError(config.name, config.location, index, None if key is None else format_key(key))
        failure.place = None if place is None else place()
        raise failure from error


@contextmanager
def placed(place: Callable[[], str]) -> Iterator[None]:
    """An error that comes from inside, and does not say yet where its record is, says this."""
    try:
        yield
    except RecordError as error:
        if error.place is None:
            error.index, error.place = None, place()
        raise


@contextmanager
def came_from(record_of: Callable[[int], int] | None = None) -> Iterator[None]:
    """Around what an operator emits: an error behind it names a record of that, and from here on the record of the
    operator's own batch that it came from. None: that is not known."""
    try:
        yield
    except RecordError as error:
        if error.index is not None:
            error.index = None if record_of is None else record_of(error.index)
        raise


class OrderedCalls:
    """Records that are taken one by one, and which was taken last. Costs nothing for a record."""

    def __init__(self, records: Batch | Sequence[Any]) -> None:
        self._records = records
        self._left: Iterator[Any] | None = None
        self.keys: Sequence[Any] | None = None
        """The key of each record, once they are known."""

    def __iter__(self) -> Iterator[Any]:
        """Begins with the first one, also where some were taken before."""
        records = self._records
        left = self._left = iter(records.values if isinstance(records, Batch) else records)
        return left

    def end(self) -> None:
        """What follows is about none of them alone."""
        self._left = None

    @property
    def index(self) -> int | None:
        """Of the record that was taken last; None: none was, or they have ended."""
        if self._left is None:
            return None
        taken = len(self._records) - length_hint(self._left)
        return taken - 1 if taken else None


@contextmanager
def typed_by(config: OperatorConfig) -> Iterator[None]:
    """A value that is not of its declared type is raised as UserCodeError of the operator that gave or keeps it."""
    try:
        yield
    except RecordTypeError as error:
        # Found when the user's function has long returned: the line is the operator's.
        raise UserCodeError(config.name, config.location) from error.with_traceback(None)


def load(config: OperatorConfig) -> tuple[Any, ...]:
    """The functions of an operator, None for what is not given. Raises UserCodeError where they cannot be loaded."""
    with user_code(config):
        return load_code(config.code)


def load_code(code: bytes) -> tuple[Any, ...]:
    """The functions that were pickled together; none for no code."""
    return tuple(sentinels.load_code(code)) if code else ()


def method_of(function: Any, name: str) -> Function:
    """What to call: the method of a function that is a class of pipelines.functions, else the function itself."""
    if isinstance(function, RichFunction) and hasattr(function, name):
        return getattr(function, name)  # type: ignore[no-any-return]
    return function  # type: ignore[no-any-return]


def open_function(function: Any, context: RuntimeContext) -> None:
    """Calls a rich function's own open(context), if it has one."""
    if not isinstance(function, type) and callable(opener := getattr(function, "open", None)):
        opener(context)


def close_function(function: Any) -> None:
    """Calls a rich function's own close(), if it has one."""
    if not isinstance(function, type) and callable(closer := getattr(function, "close", None)):
        closer()
