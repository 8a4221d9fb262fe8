"""Pickles user code by value so that its classes work where they are loaded.

The sentinels of `dataclasses` keep their identity. Data that msgspec stores in a class that it decodes is not pickled,
because it cannot be. Annotations that are texts (`from __future__ import annotations`, a class that refers to itself)
are resolved before pickling, because the names are unknown where the class is loaded. A `NewType` is pickled by value,
too.

`dataclasses` compares MISSING and similar sentinels by identity, but pickle creates a new object of each. A field
without a default would then have a default: the copy of MISSING. While this module is loaded, pickle writes the
sentinels by name, and `load_code` also restores those that another process wrote as objects.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import functools
import inspect
import io
import pickle
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any, Final

from .class_identity import identify, set_state_once

_BUILT_IN: Final = frozenset({"builtins", "types", "typing"})
_NAMED: Final = (type, types.FunctionType, types.BuiltinFunctionType)
"""What pickle may write by the name of its module."""
_NAMES: Final = ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")


def dump_code(value: Any, *, sends_program: bool = True, modules: set[str] | None = None) -> bytes:
    """Pickles functions or classes, by value if they cannot be imported elsewhere. Raises any error of their own
    code.

    `sends_program`: whether they are part of a program that this process submits. `modules` receives the names of the
    modules that must be imported where the code is loaded.
    """
    file = io.BytesIO()
    pickler = _pickler()(file)
    pickler.sends_program = sends_program
    pickler.modules = set() if modules is None else modules
    pickler.by_value = _modules_by_value()
    pickler.dump(value)
    return file.getvalue()


def load_code(code: bytes) -> Any:
    """Loads the pickled functions or class. Runs the job's code, and raises any error of it."""
    return _Unpickler(io.BytesIO(code)).load()


def class_hints(cls: type) -> dict[str, Any]:
    """Returns the type hints of a class and its bases, without those that only type checkers can resolve. Keeps
    `Annotated`."""
    return {name: hint for base in reversed(cls.__mro__) for name, hint in _own_hints(base).items()}


def _own_hints(cls: type) -> dict[str, Any]:
    module = sys.modules.get(cls.__module__)
    # As in typing, a name of the module precedes a field of the class with that name.
    names = {cls.__name__: cls, **vars(cls), **(vars(module) if module else {})}
    hints: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        # One by one: if one hint cannot be resolved, get_type_hints returns none of them.
        alone = type(cls.__name__, (), {"__annotations__": {name: annotation}, "__module__": cls.__module__})
        with contextlib.suppress(NameError, TypeError, AttributeError, SyntaxError):
            hints |= typing.get_type_hints(alone, localns=names, include_extras=True)
    return hints


@functools.cache
def _pickler() -> Any:
    import cloudpickle  # only where code is pickled, not where it runs

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        sends_program = True
        modules: set[str]
        by_value: frozenset[str]

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, typing.NewType):
                return typing.NewType, (obj.__name__, obj.__supertype__)
            if isinstance(obj, type) and obj.__module__ not in _BUILT_IN:
                identify(obj, sends_program=self.sends_program)
            reduced = super().reducer_override(obj)
            if isinstance(obj, types.ModuleType):
                if self.by_value.isdisjoint(_with_parents(obj.__name__)):
                    self.modules.add(obj.__name__)
            elif isinstance(obj, _NAMED) and reduced is NotImplemented and isinstance(obj.__module__, str):
                self.modules.add(obj.__module__)
            if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > 2:
                make, arguments, (attributes, slots), *items, _set_state = reduced
                attributes.pop("__msgspec_cache__", None)
                if "__annotations__" in attributes:
                    attributes["__annotations__"] = {**attributes["__annotations__"], **_own_hints(obj)}
                return make, arguments, (attributes, slots), *items, set_state_once
            return reduced

    return Pickler


def _modules_by_value() -> frozenset[str]:
    import cloudpickle

    return frozenset(cloudpickle.list_registry_pickle_by_value())


def _with_parents(module: str) -> Iterator[str]:
    """Yields the name of a module, and those of the packages that it is in."""
    while module:
        yield module
        module = module.rpartition(".")[0]


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "dataclasses" and name in _MAKERS:
            return _MAKERS[name]
        return super().find_class(module, name)


def _maker(sentinel: object) -> type:
    """Returns a class whose only instance is the sentinel: pickle creates objects by calling `__new__` of a class."""
    return type(type(sentinel).__name__, (), {"__new__": lambda cls: sentinel})


def _by_name(name: str) -> Any:
    sentinel = getattr(dataclasses, name)

    def reduce(value: object) -> Any:
        return name if value is sentinel else object.__reduce_ex__(value, pickle.HIGHEST_PROTOCOL)

    return reduce


_MAKERS: dict[str, type] = {}
for _name in _NAMES:
    _sentinel = getattr(dataclasses, _name, None)  # one of them is private
    if _sentinel is not None:
        _MAKERS[type(_sentinel).__name__] = _maker(_sentinel)
        copyreg.pickle(type(_sentinel), _by_name(_name))
