"""Derives record types from type hints: of a function, of a class's method, or of the class's type arguments."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from ..types import PICKLED, RecordType, with_type_arguments
from .signatures import Signature, called, is_of


def result_type(function: Any, signature: Signature) -> RecordType:
    """Returns the type of the records that a step's function emits; pickled if its hints do not define it.

    A class that is called as a function returns its instances. If two methods of a class disagree, records are pickled.
    """
    if not is_of(function, signature):
        hint: object = function if isinstance(function, type) else _return_hint(function)
        return _element(hint) if signature.yields and hint is not function else RecordType.of(hint)
    found = {_method_type(function, name, signature) for name in signature.methods}
    return found.pop() if len(found) == 1 else PICKLED


def return_type(function: Any) -> RecordType:
    """Returns the record type of a plain function's results."""
    return RecordType.of(function if isinstance(function, type) else _return_hint(function))


def _method_type(function: Any, name: str, signature: Signature) -> RecordType:
    hint = _return_hint(getattr(function, name))
    if signature.yields and hint is type(None):
        hint = None  # it emits nothing itself; its timers do
    if not _is_open(hint):
        return _element(hint) if signature.yields else RecordType.of(hint)
    if signature.base is None or signature.result is None:
        return PICKLED
    return RecordType.of(type_argument(type(function), signature.base, signature.result))


def type_argument(cls: type, base: type, index: int) -> object:
    """Returns the argument of a subclass for a type parameter of its generic base; None if it has none."""
    for parent in getattr(cls, "__orig_bases__", cls.__bases__):
        origin = typing.get_origin(parent) or parent
        if not (isinstance(origin, type) and issubclass(origin, base)):
            continue
        arguments = typing.get_args(parent)
        if origin is base:
            return arguments[index] if index < len(arguments) else None
        given = dict(zip(getattr(origin, "__parameters__", ()), arguments, strict=False))
        return with_type_arguments(type_argument(origin, base, index), given)
    return None


def _is_open(hint: object) -> bool:
    """Whether a hint does not define a type: it is missing, or is a type variable that the class's bases may define."""
    return hint is None or isinstance(hint, TypeVar) or any(map(_is_typevar, typing.get_args(hint)))


def _is_typevar(hint: object) -> bool:
    return isinstance(hint, TypeVar) or any(map(_is_typevar, typing.get_args(hint)))


def _element(hint: object) -> RecordType:
    """Returns the element type of a function's result: Iterator[X], list[X], tuple[X, ...], Iterable[X] | None, ..."""
    if hint is str:
        return RecordType.of(str)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union or origin is types.UnionType:
        present = [argument for argument in arguments if argument is not type(None)]
        return _element(present[0]) if len(present) == 1 else PICKLED
    if not isinstance(origin, type) or not issubclass(origin, collections.abc.Iterable) or not arguments:
        return PICKLED
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return RecordType.of(arguments[0] if len(set(arguments)) == 1 else None)
    return RecordType.of(arguments[0])


def _return_hint(function: Callable[..., Any]) -> object:
    behind = inspect.unwrap(called(function))
    if isinstance(behind, type):
        return behind
    try:
        return typing.get_type_hints(behind, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):  # imported for type checkers only, or no hints at all
        return _return_hint_alone(behind)


def _return_hint_alone(behind: Any) -> object:
    """Returns the return hint alone, if another hint, or a class local to a function, prevents reading them
    together."""
    hint = getattr(behind, "__annotations__", {}).get("return")
    if not isinstance(hint, str):
        return hint
    names = dict(getattr(behind, "__globals__", {}))
    code, cells = getattr(behind, "__code__", None), getattr(behind, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    try:
        evaluated = eval(hint, names)
    except Exception:
        return None
    return None if isinstance(evaluated, str) else evaluated  # a hint in quotes twice
