"""How a graph names a message class that protoc generated: `module:Class`, with dots in a nested class's name.

A graph arrives from outside, and naming a class runs no code. Only processes that run the job's code load it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.message import Message

_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def is_class_name(value: object) -> bool:
    """Returns whether a value has the form of a name."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def check_protobuf() -> None:
    """Raises ValueError, one line, if the package protobuf is not installed."""
    # find_spec of a submodule raises an error if its package is missing.
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.protobuf") is None:
        raise ValueError(
            "the package protobuf is not installed: pip install 'tailrace[protobuf]', here and where the cluster runs"
        )


def name_of(message: object) -> str:
    """Returns the name of a class. Raises ValueError, one line, if it is not a message class that can be imported."""
    check_protobuf()
    from google.protobuf.message import Message

    if not (isinstance(message, type) and issubclass(message, Message)):
        raise ValueError(f"{message!r} is not a message class that protoc generated")
    name = f"{message.__module__}:{message.__qualname__}"
    module = sys.modules.get(message.__module__)
    if (
        message.__module__ == "__main__"
        or module is None
        or _attribute(module, message.__qualname__) is not message
    ):
        raise ValueError(
            f"the message class {message.__qualname__} cannot be imported elsewhere: generate a module with protoc, and"
            " ship it with env.add_python_file"
        )
    return name


def load(name: str) -> type[Message]:
    """Returns the class of a name. Runs the code of its module. Raises ValueError, one line."""
    check_protobuf()
    from google.protobuf.message import Message

    module, _, path = name.partition(":")
    try:
        found = _attribute(importlib.import_module(module), path)
    except Exception as error:  # any error of the module
        raise ValueError(
            f"the Protobuf module {module} cannot be imported: {type(error).__name__}: {error}; ship it with"
            " env.add_python_file"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Message)):
        raise ValueError(f"the module {module} has no Protobuf message class {path}")
    return found


def _attribute(module: object, path: str) -> object:
    found: object = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
