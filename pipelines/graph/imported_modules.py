"""Checks that the modules that a vertex's functions import are where its tasks run, before a process starts.

The build of a program records the modules that its functions refer to by name (the parameter `modules`). Modules are
looked for, and not imported: that would run their code in the TaskExecutor.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from ...schemas.types import OperatorConfig
from .archives import package_directories
from .errors import ProgramError


def check_modules(operators: Sequence[OperatorConfig], directory: str | None) -> None:
    """Checks the modules of these operators. `directory`: that of the job's shipped files, unpacked; None: there are
    none.

    Raises ProgramError that names the first missing module and the operator that needs it.
    """
    path = [] if directory is None else list(_search_path(Path(directory)))
    for operator in operators:
        for module in json.loads(operator.parameters or "{}").get("modules", ()):
            if not _exists(module, path):
                place = "" if operator.location is None else f" ({operator.location})"
                raise ProgramError(
                    f"operator {operator.name!r}{place} imports the module {module}, which is not installed where the"
                    " task runs: ship it with --requirements or --py-file, or install it on each TaskExecutor"
                )


def _search_path(directory: Path) -> Iterator[str]:
    yield str(directory)
    yield from map(str, sorted(directory.glob("*.zip")))
    yield from map(str, package_directories(directory))


def _exists(module: str, path: Sequence[str]) -> bool:
    if module in sys.modules or module in sys.stdlib_module_names or PathFinder.find_spec(module) is not None:
        return True
    zips = [entry for entry in path if entry.endswith(".zip")]
    found = PathFinder.find_spec(module, [entry for entry in path if not entry.endswith(".zip")])
    return found is not None or any(_is_in(Path(entry), module) for entry in zips)


def _is_in(file: Path, module: str) -> bool:
    with zipfile.ZipFile(file) as archive:
        return any(name.partition("/")[0].partition(".")[0] == module for name in archive.namelist())
