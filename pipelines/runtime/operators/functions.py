"""Loading the user's functions, and calling them so that an error says whose it was.

Only StreamTask processes and Spark's Python workers may load: it runs the job's code.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ....schemas.types import OperatorConfig
from ..failures import UserCodeError

Function = Callable[..., Any]


@contextmanager
def user_code(config: OperatorConfig) -> Iterator[None]:
    """Whatever is raised inside is raised as UserCodeError of that operator."""
    try:
        yield
    except UserCodeError:
        raise
    except Exception as error:
        raise UserCodeError(config.name, config.location) from error


def load(config: OperatorConfig) -> tuple[Function, ...]:
    """The functions of an operator. Raises UserCodeError where they cannot be loaded here."""
    with user_code(config):
        return load_code(config.code)


def load_code(code: bytes) -> tuple[Function, ...]:
    """The functions that were pickled together; none for no code."""
    return tuple(pickle.loads(code)) if code else ()


def open_function(function: Function) -> None:
    """Calls a rich function's own open(), if it has one."""
    if callable(opener := getattr(function, "open", None)):
        opener()


def close_function(function: Function) -> None:
    """Calls a rich function's own close(), if it has one."""
    if callable(closer := getattr(function, "close", None)):
        closer()
