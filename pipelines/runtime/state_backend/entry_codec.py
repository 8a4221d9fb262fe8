"""The form of an entry in a database: key and object, pickled.

Only the process that wrote an entry, and its forked children, read it. So a class or function of the program that
pickle does not find by its name is stored as its number in this process.
"""

from __future__ import annotations

import io
import pickle
from types import FunctionType
from typing import Any, Final

import cloudpickle

_PROTOCOL: Final = 5
_objects: Final[list[Any]] = []
_numbers: Final[dict[int, int]] = {}


class EntryCodec:
    """Encodes entries. It remembers whether pickle alone suffices."""

    def __init__(self) -> None:
        self._encode = _encode

    def encode(self, key: Any, held: Any) -> bytes:
        """Encodes an entry. Raises any error of pickling a user's object."""
        try:
            return self._encode((key, held))
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
        self._encode = _encode_numbered
        try:
            return _encode_numbered((key, held))
        except (pickle.PicklingError, AttributeError, TypeError):
            data: bytes = cloudpickle.dumps((key, held), _PROTOCOL)
            return data

    @staticmethod
    def decode(data: bytes) -> tuple[Any, Any]:
        """Decodes the result of `encode`."""
        entry: tuple[Any, Any] = pickle.loads(data)
        return entry


def _encode(entry: tuple[Any, Any]) -> bytes:
    return pickle.dumps(entry, _PROTOCOL)


def _encode_numbered(entry: tuple[Any, Any]) -> bytes:
    file = io.BytesIO()
    _NumberingPickler(file, _PROTOCOL).dump(entry)
    return file.getvalue()


class _NumberingPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if obj is _object_of or not isinstance(obj, type | FunctionType):
            return NotImplemented
        number = _numbers.get(id(obj))
        if number is None:
            number = _numbers[id(obj)] = len(_objects)
            _objects.append(obj)
        return _object_of, (number,)


def _object_of(number: int) -> Any:
    return _objects[number]
