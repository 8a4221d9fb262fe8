"""Files that a program ships, and the modules that the job's processes therefore import.

A module that was imported from a shipped file, under the same name as in the job's processes, is pickled by reference.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ...schemas.types import PythonFile
from ..graph.archives import is_wheel
from ..graph.errors import ProgramError
from ..graph.python_files import check, collect_files, merge_files, read_archive
from .requirements import resolve_requirements
from .source_location import caller_location


class ShippedFiles:
    """The arguments of `add_python_file`, and the files that the program itself was imported from."""

    def __init__(self, files: Sequence[PythonFile] = (), directory: str | None = None) -> None:
        """`directory` holds the unpacked files, if this process imports from them."""
        self.files: tuple[PythonFile, ...] = tuple(files)
        self._origins: set[str] = set()
        self._zips: list[str] = []
        if directory is not None:
            for file in files:
                self._remember(file.path, Path(directory, file.path))

    def add(self, path: str) -> None:
        """Reads a file, or all files of a directory. Raises ProgramError."""
        found = self._merge("add_python_file", path, collect_files)
        given = Path(path)
        root = given.resolve().parent if given.is_dir() else given.absolute().parent
        for file in found:
            self._remember(file.path, root / file.path)
        if is_wheel(given.name):
            # The program imports it if it is installed here, too.
            return
        # At the end of the path: modules that the program could import before come from the same place.
        importable = str(path) if str(path).endswith(".zip") else str(root)
        if importable not in sys.path:
            sys.path.append(importable)

    def add_requirements(self, path: str) -> None:
        """Adds the wheels of a requirements file. Raises ProgramError."""
        self._merge("set_python_requirements", path, resolve_requirements)

    def add_archive(self, path: str, directory: str | None) -> None:
        """Adds a file that is unpacked into the directory. Raises ProgramError."""
        self._merge("add_python_archive", path, lambda text: (read_archive(text, directory),))

    def _merge(
        self, step: str, path: str, read: Callable[[str], Sequence[PythonFile]]
    ) -> Sequence[PythonFile]:
        """Adds the files that `read` returns, and returns them."""
        try:
            found = read(os.fspath(path))
            files = merge_files(self.files, found)
            check(files)
        except (ProgramError, TypeError) as error:
            reason = error.reason if isinstance(error, ProgramError) else f"{path!r} is not a path"
            raise ProgramError(reason, operator=step, location=caller_location()) from error
        self.files = files
        return found

    def has(self, module: ModuleType) -> bool:
        """Whether the job's processes import the module from the shipped files."""
        origin: Any = getattr(module, "__file__", None)
        if not isinstance(origin, str):
            return False
        name = module.__name__.replace(".", "/")
        real = os.path.realpath(origin)
        if any(real == f"{archive}{os.sep}{end}" for archive in self._zips for end in _files_of(name)):
            return True
        return real in self._origins and any(real.endswith(os.sep + end) for end in _files_of(name))

    def _remember(self, path: str, origin: Path) -> None:
        real = os.path.realpath(origin)
        if path.endswith(".zip") and "/" not in path:
            self._zips.append(real)
        elif path.endswith(".py"):
            self._origins.add(real)


def _files_of(name: str) -> tuple[str, str]:
    return f"{name}.py", f"{name}/__init__.py"
