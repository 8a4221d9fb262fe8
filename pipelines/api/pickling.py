"""How functions are shipped: by reference if the job's processes can import them, otherwise by value.

Installed packages, and modules that the program ships (`add_python_file`), are imported where the job runs. The program
itself, and modules beside it that are not shipped, are pickled by value.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..graph.errors import ProgramError
from ..sentinels import dump_code
from .source_location import is_users

_PACKAGE = __name__.split(".", 1)[0]

_registry = threading.RLock()
"""Protects cloudpickle's registry, which all threads share. A program may make another one."""


def dump_functions(
    functions: Sequence[object],
    *,
    operator: str,
    location: str | None,
    what: str = "function",
    modules: set[str] | None = None,
) -> bytes:
    """Returns the functions for OperatorConfig.code or JobEdge.code; empty for none. `what` names them in errors;
    `modules` receives the names of the modules that they import.

    Raises ProgramError if they cannot be pickled.
    """
    if not functions:
        return b""
    try:
        return dump_code(tuple(functions), modules=modules)
    except Exception as error:  # a user's own __reduce__ may raise anything
        raise ProgramError(
            f"its {what} cannot be sent to the cluster: {type(error).__name__}: {error};"
            " make what cannot be pickled in open() of a rich function, or inside the function",
            operator=operator,
            location=location,
        ) from error


def packages_to_import(modules: set[str]) -> list[str]:
    """Returns the packages of these modules, without those of Python and of tailrace."""
    packages = {module.partition(".")[0] for module in modules}
    return sorted(packages - sys.stdlib_module_names - {_PACKAGE, "__main__", "cloudpickle"})


@contextmanager
def local_modules_by_value(is_shipped: Callable[[types.ModuleType], bool]) -> Iterator[None]:
    """Context manager: inside it, cloudpickle pickles by value all modules that are neither installed nor shipped. One
    thread at a time is inside."""
    import cloudpickle

    with _registry:
        already = set(cloudpickle.list_registry_pickle_by_value())
        modules = [
            module
            for module in list(sys.modules.values())
            if _is_local(module) and module.__name__ not in already and not is_shipped(module)
        ]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def _is_local(module: Any) -> bool:
    name, path = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if not isinstance(path, str) or name == "__main__" or sys.modules.get(name) is not module:
        return False
    return name.split(".", 1)[0] != _PACKAGE and is_users(path)
