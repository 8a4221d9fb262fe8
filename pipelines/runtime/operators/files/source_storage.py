"""Locations of files: the local file system, or a URL through fsspec.

A path is a file, a directory with everything below it, or a glob (`*`, `?`, `[...]`, and `**` for any directories).
Below a directory and in a glob, files and directories whose names begin with `.` or `_` are ignored: writers keep
unfinished files there.
"""

from __future__ import annotations

import functools
import re
from operator import itemgetter
from typing import Any, Final

import msgspec
from pyarrow import fs

from .....infra.storage.file_systems import connect
from ...common.failures import TaskError, one_line

_MAGIC: Final = re.compile(r"[*?\[]")
_PARTS: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[!?[^\]]+\]|.", re.DOTALL)


class FoundFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was when it was listed."""

    path: str
    """The path to open it: with its scheme, if it is not on this machine."""
    size: int
    """In bytes."""
    modified_ms: int = 0
    """When it was last modified; 0 if the file system does not tell."""


class SourceStorage(msgspec.Struct, frozen=True):
    """A file system, and the relation between URLs and the paths in it."""

    system: Any
    """The pyarrow.fs.FileSystem."""
    url: str = ""
    """The URL of its root, without a trailing slash; empty on this machine."""
    root: str = ""
    """The root as a path in the file system."""

    def inside(self, path: str) -> str:
        """Returns the path in the file system of a path or URL."""
        return self.root + path[len(self.url) :]

    def outside(self, path: str) -> str:
        """Returns the path or URL of a path in the file system."""
        return self.url + path[len(self.root) :]


def open_source_storage(path: str) -> SourceStorage:
    """Returns the storage of a path or URL. Raises TaskError if it cannot be reached."""
    scheme, mark, rest = path.partition("://")
    if not mark:
        return _LOCAL
    if scheme == "file":
        return SourceStorage(fs.LocalFileSystem(), "file://")
    return _remote(scheme, rest.partition("/")[0])


@functools.lru_cache(maxsize=64)
def _remote(scheme: str, authority: str) -> SourceStorage:
    """Cached, because connecting takes time."""
    url = f"{scheme}://{authority}"
    try:
        inner, root = connect(url)
    except OSError as error:
        raise TaskError(str(error)) from error
    return SourceStorage(fs.PyFileSystem(fs.FSSpecHandler(inner)), url, root.rstrip("/"))


def list_files(path: str, *, may_be_empty: bool = False) -> list[FoundFile]:
    """Returns the files of a path, sorted. Raises TaskError if it cannot be listed, or there is no such file.

    `may_be_empty`: a glob may match no file yet.
    """
    storage = open_source_storage(path)
    try:
        found = _list(storage, path, may_be_empty)
    except OSError as error:
        raise TaskError(f"{path} could not be listed: {one_line(error)}") from error
    return [
        FoundFile(storage.outside(name), info.size, (info.mtime_ns or 0) // 1_000_000) for name, info in found
    ]


def _list(storage: SourceStorage, path: str, may_be_empty: bool) -> list[tuple[str, Any]]:
    system, inner = storage.system, storage.inside(path)
    if not _MAGIC.search(inner):
        info = system.get_file_info(inner)
        if info.type is fs.FileType.File:
            return [(inner, info)]
        if info.type is fs.FileType.NotFound:
            raise TaskError(f"no such file or directory: {path}; it must be there for every TaskExecutor")
        return _below(system, inner)
    base = inner[: inner.rfind("/", 0, _first_magic(inner)) + 1]
    if system.get_file_info(base or ".").type is not fs.FileType.Directory:
        raise TaskError(f"no such directory: {storage.outside(base) or '.'}, of {path}")
    pattern = glob_pattern(inner[len(base) :])
    found = [
        (name, info) for name, info in _below(system, base or ".") if pattern.fullmatch(name[len(base) :])
    ]
    if not found and not may_be_empty:
        raise TaskError(f"no file matches {path}")
    return found


def open_file(path: str) -> Any:
    """Returns a pyarrow file for random access. Raises OSError, TaskError."""
    storage = open_source_storage(path)
    return storage.system.open_input_file(storage.inside(path))


def glob_pattern(glob: str) -> re.Pattern[str]:
    """Returns the regular expression of a glob for whole relative paths."""
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


def _below(system: Any, directory: str) -> list[tuple[str, Any]]:
    """Returns the paths and FileInfos of the files below a directory."""
    base = directory.rstrip("/")
    # A writer may remove a directory meanwhile.
    infos = system.get_file_info(fs.FileSelector(directory, allow_not_found=True, recursive=True))
    found = []
    for info in infos:
        name = info.path.removeprefix("./") if directory == "." else info.path
        relative = name if directory == "." else name[len(base) :].lstrip("/")
        if info.type is fs.FileType.File and not any(
            part.startswith((".", "_")) for part in relative.split("/")
        ):
            found.append((name, info))
    return sorted(found, key=itemgetter(0))


_LOCAL: Final = SourceStorage(fs.LocalFileSystem())
