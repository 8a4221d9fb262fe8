"""Imports, before a fork, what every task needs and what programs usually import.

Unpickling a user's function imports its modules; a module that is already imported costs nothing.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import Final

_MODULES: Final = (
    "argparse",
    "collections",
    "dataclasses",
    "datetime",
    "hashlib",
    "random",
    "re",
    "typing",
    "cloudpickle",
    # PyArrow imports it at its first array, which takes a third of a second.
    "pandas",
    "pyarrow.compute",
    "tailrace.pipelines.api",
)


def preload() -> None:
    """Imports the modules, and keeps the garbage collector from touching memory that forked processes share."""
    for name in _MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
