"""The files that a program ships with its job: how they are validated, read, unpacked and imported.

A job's processes find them in a directory of their own, first on sys.path. So does the process that builds the graph of
a program from such files. A zip file at the top is on sys.path, too, and so are the packages of wheels and of packed
environments (archives.py). Files that are not Python code are data: `shipped_file` of pipelines.functions finds them.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import zipimport
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from ...infra.config.characters import is_plain
from ...schemas.types import PythonFile
from . import standard_modules
from .archives import (
    archive_name,
    distribution_of,
    is_archive,
    is_wheel,
    package_directories,
    unpack_archive,
    unpack_wheel,
)
from .errors import ProgramError

MAX_FILES = 2_000
MAX_BYTES = 6 << 20
"""The size of all files together that travel in the submission: together with the graph they must fit into an event
of the log."""
MAX_SHIPPED_BYTES = 512 << 20
"""The size of all files together, before large ones become blobs: they are held in memory."""
MAX_PATH_LENGTH = 512
_LONGEST_PART = 200
_PASSED_OVER = frozenset({"__pycache__"})
_INIT = "__init__.py"
_SUFFIXES = (".py", ".pyc", ".so", ".zip")

_OURS = frozenset(
    (
        *(
            "__main__",
            "cloudpickle",
            "confluent_kafka",
            "fastavro",
            "fsspec",
            "immutables",
            "kazoo",
            "msgspec",
        ),
        *(
            "numpy",
            "pandas",
            "psutil",
            "py4j",
            "pyarrow",
            "pyspark",
            "rich",
            "structlog",
            "tailrace",
            "typer",
        ),
        "yaml",
    )
)
"""Modules that the importing processes may have imported already, and need."""


def validation_errors(files: Sequence[PythonFile], most_bytes: int = MAX_BYTES) -> Iterator[str]:
    """Yields the reasons why files cannot be shipped, one line each.

    `most_bytes` limits the files with content; blobs have a limit where they are stored.
    """
    if len(files) > MAX_FILES:
        yield f"it ships {len(files):,} files, more than {MAX_FILES:,}: put them into a zip file"
    size = sum(len(file.content) for file in files)
    if size > most_bytes:
        yield (
            f"the files that it ships have {size:,} bytes, more than {most_bytes:,}: install what is large where the "
            "cluster runs, or let the job load it from storage"
        )
    for path, count in Counter(file.path for file in files).items():
        if (reason := _path_fault(path)) is not None:
            yield f"the shipped file {_shown(path)} {reason}"
        elif count > 1:
            yield f"{count} shipped files have the path {_shown(path)}"
    for file in files:
        if file.content and file.blob is not None:
            yield f"the shipped file {_shown(file.path)} has content and names a blob that is its content: give one"
    paths = {file.path for file in files}
    for path in sorted(paths.intersection(str(parent) for file in paths for parent in _parents(file))):
        yield f"the shipped file {_shown(path)} has the path of a directory of others"


def check(files: Sequence[PythonFile]) -> None:
    """Raises ProgramError for files that cannot be shipped, inline or as blobs."""
    for reason in validation_errors(files, MAX_SHIPPED_BYTES):
        raise ProgramError(reason)


def collect_files(path: str) -> tuple[PythonFile, ...]:
    """Returns a file, or all files of a directory, below the directory's name. Raises ProgramError.

    If a directory is not a package itself, its modules and packages are also shipped without the directory's name, so
    that they can be imported.
    """
    found = Path(path)
    try:
        if found.is_file():
            return (PythonFile(path=found.name, content=found.read_bytes()),)
        if not found.is_dir():
            raise ProgramError(f"{path} can't be shipped: there is no such file or directory")
        top = found.resolve()
        below = sorted(
            file for file in top.rglob("*") if file.is_file() and _is_shippable(file.relative_to(top))
        )
        if len(below) > MAX_FILES:
            raise ProgramError(
                f"{path} can't be shipped: it has {len(below):,} files, more than {MAX_FILES:,}"
            )
        files = []
        left = MAX_SHIPPED_BYTES
        for file in below:
            left -= file.stat().st_size
            if left < 0:
                raise ProgramError(
                    f"{path} can't be shipped: its files have more than {MAX_SHIPPED_BYTES:,} bytes; install "
                    "what is large "
                    "where the cluster runs, or let the job load it from storage"
                )
            content, inner = file.read_bytes(), PurePosixPath(*file.relative_to(top).parts)
            files.append(PythonFile(path=str(PurePosixPath(top.name, inner)), content=content))
            if _is_loose(top, inner):
                files.append(PythonFile(path=str(inner), content=content))
    except OSError as error:
        raise ProgramError(f"{path} can't be shipped: {error.strerror or error}") from error
    if not files:
        raise ProgramError(f"{path} can't be shipped: it is a directory without files")
    return tuple(files)


def read_archive(path: str, directory: str | None = None) -> PythonFile:
    """Returns a zip or tar file that is unpacked where the job runs. `directory`: its name there; None: the name of the
    file, without its ending. Raises ProgramError."""
    found = Path(path)
    try:
        if found.is_file() and found.stat().st_size > MAX_SHIPPED_BYTES:
            raise ProgramError(f"{path} can't be shipped: it has more than {MAX_SHIPPED_BYTES:,} bytes")
        content = found.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path} can't be shipped: {error.strerror or error}") from error
    if not is_archive(found):
        raise ProgramError(f"{path} can't be shipped as an archive: it is neither a zip nor a tar file")
    return PythonFile(path=directory or archive_name(found.name), content=content, archive=True)


def _is_loose(top: Path, inner: PurePosixPath) -> bool:
    """Whether a file belongs to a module or package of a directory that is not a package itself."""
    first = inner.parts[0]
    if (top / _INIT).exists() or _is_taken(first.partition(".")[0]):
        return False
    return first.endswith(".py") if len(inner.parts) == 1 else (top / first / _INIT).exists()


def merge_files(files: Iterable[PythonFile], more: Iterable[PythonFile]) -> tuple[PythonFile, ...]:
    """Returns all files by path; if a path is in both, the file of `more`."""
    by_path = {file.path: file for file in (*files, *more)}
    return tuple(by_path[path] for path in sorted(by_path))


def unpack(files: Sequence[PythonFile], directory: Path, blobs: Mapping[str, str] | None = None) -> None:
    """Writes the files below a directory, which it creates.

    `blobs`: key -> the local file with the content, for files that are blobs. Raises OSError, and ProgramError for a
    file with a forbidden path or for a missing blob.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        # The event may be forged: never write outside of the directory.
        if (reason := _path_fault(file.path)) is not None:
            raise ProgramError(f"the shipped file {_shown(file.path)} {reason}")
        path = directory.joinpath(*PurePosixPath(file.path).parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.archive:
            path = path.with_name(f"{path.name}.packed")
        if file.blob is None:
            path.write_bytes(file.content)
        elif blobs is not None and file.blob in blobs:
            shutil.copyfile(blobs[file.blob], path)
        else:
            raise ProgramError(f"the shipped file {_shown(file.path)} is a blob, which nobody has fetched")
        if file.archive:
            unpack_archive(path, path.with_name(path.name.removesuffix(".packed")))
            path.unlink()
        elif is_wheel(file.path):
            unpack_wheel(path, directory)
            path.unlink()


def import_from(directory: Path) -> None:
    """Imports from the directory of unpacked files first, from now on.

    Drops an imported module from another place if a shipped module has its name. Raises ProgramError for an environment
    of another Python.
    """
    zips = sorted(str(path) for path in directory.glob("*.zip"))
    if zips and zipimport.zipimporter not in sys.path_hooks:
        sys.path_hooks.insert(0, zipimport.zipimporter)
    packages = package_directories(directory)
    sys.path[:0] = [str(directory), *zips, *map(str, packages)]
    importlib.invalidate_caches()
    names = {path.name.partition(".")[0] for of in (directory, *packages) for path in of.iterdir()}
    for name in list(sys.modules):
        if (top := name.partition(".")[0]) in names and not (
            _is_taken(top) or top in sys.stdlib_module_names
        ):
            del sys.modules[name]
    # Imported here: services only check files, and do not need what functions are written with.
    from ..functions import files as shipped

    shipped.directory = directory


def _path_fault(path: str) -> str | None:
    parts = path.split("/")
    if len(path) > MAX_PATH_LENGTH or any(
        len(part.encode(errors="replace")) > _LONGEST_PART for part in parts
    ):
        return f"has a path of more than {MAX_PATH_LENGTH} characters, or more than {_LONGEST_PART} bytes in a part"
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or ":" in path or not is_plain(path):
        return "has no relative path of names joined by '/', such as shop/prices.py"
    top = distribution_of(path).replace("-", "_") if is_wheel(path) else parts[0].partition(".")[0]
    if _is_taken(top) and path.endswith((*_SUFFIXES, ".whl")) and not path.endswith(".zip"):
        owner = "of Python's own" if top in standard_modules.NAMES else "that tailrace needs"
        return f"would hide the module {top} {owner}: rename it"
    return None


def _is_taken(name: str) -> bool:
    return name in _OURS or name in standard_modules.NAMES


def _parents(path: str) -> Iterable[PurePosixPath]:
    return list(PurePosixPath(path).parents)[:-1]


def _is_shippable(path: Path) -> bool:
    return not any(part in _PASSED_OVER or part.startswith(".") for part in path.parts)


def _shown(path: str) -> str:
    return repr(path[:80])
