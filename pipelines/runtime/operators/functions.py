"""Loading the user's functions, and calling them so that an error says whose it was.

Only StreamTask processes and Spark's Python workers may load: it runs the job's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import length_hint
from typing import Any

from ....schemas.types import OperatorConfig
from ... import sentinels
from ...functions import RichFunction, RuntimeContext
from ...types import RecordTypeError
from ..failures import StateTypeError, UserCodeError

Function = Callable[..., Any]


@contextmanager
def user_code(config: OperatorConfig, records: InOrder | None = None) -> Iterator[None]:
    """Whatever is raised inside is raised as UserCodeError of that operator.

    `records`: where the function is called for each, so that the error says for which; see `InOrder`.
    """
    try:
        yield
    except (UserCodeError, StateTypeError):
        raise
    except (Exception, SystemExit) as error:
        # A function that calls sys.exit() ends its task with a reason, too.
        raise UserCodeError(
            config.name, config.location, None if records is None else records.index
        ) from error


class InOrder:
    """Records that are taken one by one, and which was taken last."""

    def __init__(self, records: list[Any]) -> None:
        self._count = len(records)
        self._left = iter(records)

    def __iter__(self) -> Iterator[Any]:
        return self._left

    @property
    def index(self) -> int:
        """Of the record that was taken last."""
        return self._count - length_hint(self._left) - 1


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
