"""Keeps a class that is pickled by value the same class, whichever submission of the program pickled it.

cloudpickle gives each class a random id in each process that pickles it. State that an earlier submission wrote would
then contain objects of other classes than the program's: members of an enum and frozen dataclasses would not be equal
to the program's own, and keys of such classes would not be found. Here the id is derived from the names of the module
and the class, and from its number among the program's classes of that name.

The first loaded version of a class stays. Tasks load the functions and record types of their job before they restore
state, so restored objects have the classes of the current program. NamedTuples and dataclasses with slots are restored
by the positions of their fields. For them the names of the fields are part of the id: with other fields it is another
class, and the object keeps the class that it was pickled with.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, Final
from weakref import WeakSet

_numbers: Final[Counter[str]] = Counter()
_complete: Final[WeakSet[type]] = WeakSet()


def identify(cls: type, *, sends_program: bool) -> None:
    """Gives a class its id before cloudpickle does.

    `sends_program`: whether this process submits the program. In other processes, functions may create classes of one
    name for each record: those keep cloudpickle's random ids.
    """
    from cloudpickle import cloudpickle

    _complete.add(cls)
    if "<locals>" in cls.__qualname__ and not sends_program:
        return
    with cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK:
        if cls not in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS:
            name = f"{cls.__module__}.{cls.__qualname__}({', '.join(_places(cls))})"
            class_id = f"{name}#{_numbers[name]}"
            _numbers[name] += 1
            cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS[cls] = class_id
            cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID[class_id] = cls


def set_state_once(cls: type, state: Any) -> type:
    """Replaces cloudpickle's function in pickles: does not change a class that is complete."""
    from cloudpickle import cloudpickle

    if cls not in _complete:
        cloudpickle._class_setstate(cls, state)
        _complete.add(cls)
    return cls


def _places(cls: type) -> tuple[str, ...]:
    """Returns the fields whose positions restore an object; empty for other classes."""
    if issubclass(cls, tuple):
        return tuple(getattr(cls, "_fields", ()))
    if dataclasses.is_dataclass(cls) and "__slots__" in vars(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return ()
