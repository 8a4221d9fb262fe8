"""Where files are: the file system of this machine, or what a URL names, through pyarrow or fsspec.

A path is a file, a directory with all that is below it, or a glob (`*`, `?`, `[...]`, and `**` for any directories).
Files and directories whose names begin with `.` or `_` are not seen below a directory or by a glob: writers keep there
what is not finished.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from pyarrow import fs

from ...failures import TaskError

_MAGIC: Final = re.compile(r"[*?\[]")
_PARTS: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]|.", re.DOTALL)


class FoundFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when it was listed."""

    path: str
    """As it can be opened: with its scheme, where it is not on this machine."""
    size: int
    """Bytes."""


def locate(path: str) -> tuple[Any, str, str]:
    """File system, the path in it, and what to put in front of such a path to locate it again. Raises TaskError."""
    scheme, mark, rest = path.partition("://")
    if not mark or scheme == "file":
        return fs.LocalFileSystem(), rest if mark else path, ""
    try:
        import fsspec  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        pass
    else:
        try:
            system, inner = fsspec.core.url_to_fs(path)
        except (ImportError, ValueError) as error:
            raise TaskError(f"{path}: {error}") from error
        return fs.PyFileSystem(fs.FSSpecHandler(system)), inner, f"{scheme}://"
    # The base only: a glob's characters are none of a URL's.
    base = _MAGIC.split(path, 1)[0]
    try:
        system, inner = fs.FileSystem.from_uri(base)
    except Exception as error:
        raise TaskError(
            f"{path}: no file system for {scheme}:// here ({error}); install fsspec and the package for {scheme}"
        ) from error
    return system, inner + path[len(base) :], f"{scheme}://"


def list_files(path: str) -> list[FoundFile]:
    """What a path names, sorted. Raises TaskError where there is nothing of that name or it cannot be listed."""
    system, inner, prefix = locate(path)
    try:
        if not _MAGIC.search(inner):
            info = system.get_file_info(inner)
            if info.type is fs.FileType.File:
                return [FoundFile(prefix + inner, info.size)]
            if info.type is fs.FileType.NotFound:
                raise TaskError(f"no such file or directory: {path}; it must be there for every TaskExecutor")
            return [FoundFile(prefix + name, size) for name, size in _below(system, inner)]
        base = inner[: inner.rfind("/", 0, _first_magic(inner)) + 1]
        if system.get_file_info(base or ".").type is not fs.FileType.Directory:
            raise TaskError(f"no such directory: {prefix}{base}, of {path}")
        pattern = glob_pattern(inner[len(base) :])
        found = [
            FoundFile(prefix + name, size)
            for name, size in _below(system, base or ".")
            if pattern.fullmatch(name[len(base) :])
        ]
    except OSError as error:
        raise TaskError(f"{path} could not be listed: {error}") from error
    if not found:
        raise TaskError(f"no file is named like {path}")
    return found


def open_file(path: str) -> Any:
    """A pyarrow file for random access. Raises OSError, TaskError."""
    system, inner, _ = locate(path)
    return system.open_input_file(inner)


def glob_pattern(glob: str) -> re.Pattern[str]:
    """The regular expression of a glob over whole relative paths."""
    meanings = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = []
    for part in _PARTS.findall(glob):
        if part in meanings:
            parts.append(meanings[part])
        elif len(part) > 1:
            parts.append(part.replace("[!", "[^", 1))
        else:
            parts.append(re.escape(part))
    return re.compile("".join(parts), re.DOTALL)


def _first_magic(path: str) -> int:
    found = _MAGIC.search(path)
    return found.start() if found else len(path)


def _below(system: Any, directory: str) -> list[tuple[str, int]]:
    base = directory.rstrip("/")
    infos = system.get_file_info(fs.FileSelector(directory, recursive=True))
    found = []
    for info in infos:
        name = info.path.removeprefix("./") if directory == "." else info.path
        relative = name if directory == "." else name[len(base) :].lstrip("/")
        if info.type is fs.FileType.File and not any(
            part.startswith((".", "_")) for part in relative.split("/")
        ):
            found.append((name, info.size))
    return sorted(found)
