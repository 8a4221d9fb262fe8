"""User code is pickled by value so that its classes work where they are loaded.

The sentinels of `dataclasses` keep their identity. What msgspec stores in a class that it decodes is not sent, since it
can't be pickled.

`dataclasses` compares MISSING and its like by identity, but pickle makes a new object of each. A field without a
default then has a default: the copy of MISSING. While this module is loaded, pickle writes the sentinels by name, and
`load_code` also restores those that another process wrote as objects.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import io
import pickle
from typing import Any, Final

_NAMES: Final = ("MISSING", "KW_ONLY", "_HAS_DEFAULT_FACTORY")


def dump_code(value: Any) -> bytes:
    """Functions or classes, by value where they can't be imported elsewhere. Raises whatever their own code raises."""
    file = io.BytesIO()
    _pickler()(file).dump(value)
    return file.getvalue()


def load_code(code: bytes) -> Any:
    """The functions or the class that were pickled. Runs the job's code, and raises whatever that raises."""
    return _Unpickler(io.BytesIO(code)).load()


@functools.cache
def _pickler() -> Any:
    import cloudpickle  # only where code is sent, not where it runs

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            reduced = super().reducer_override(obj)
            if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) > 2:
                attributes, _slots = reduced[2]
                attributes.pop("__msgspec_cache__", None)
            return reduced

    return Pickler


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "dataclasses" and name in _MAKERS:
            return _MAKERS[name]
        return super().find_class(module, name)


def _maker(sentinel: object) -> type:
    """A class whose only instance is the sentinel: pickle makes objects by calling `__new__` of a class."""
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
