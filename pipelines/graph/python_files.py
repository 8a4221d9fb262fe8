"""The files that a program ships with its job: which may be shipped, how they are read, unpacked and imported.

A job's processes find them in a directory of their own, first on sys.path, and so does the process that builds the
graph of a program that came in such files. A zip file at the top is on sys.path, too. What is no Python code is data:
`shipped_file` of pipelines.functions finds it.
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
from .errors import ProgramError

MAX_FILES = 2_000
MAX_BYTES = 6 << 20
"""Of all files together that travel in the submission: with the graph in it, it has to fit into an event of the log."""
MAX_SHIPPED_BYTES = 512 << 20
"""Of all files together, before those that are large are made blobs: they are held in memory."""
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
"""What the processes that import the files may have imported already, and can't do without."""


def validation_errors(files: Sequence[PythonFile], most_bytes: int = MAX_BYTES) -> Iterator[str]:
    """Everything that keeps the files from being shipped, one line each.

    `most_bytes` is for those whose content is in them: blobs are bounded where they are kept.
    """
    if len(files) > MAX_FILES:
        yield f"it ships {len(files):,} files, more than {MAX_FILES:,}: put them into a zip file"
    size = sum(len(each.content) for each in files)
    if size > most_bytes:
        yield (
            f"the files that it ships have {size:,} bytes, more than {most_bytes:,}: install what is large where the "
            "cluster runs, or let the job load it from storage"
        )
    for path, count in Counter(each.path for each in files).items():
        if (reason := _path_fault(path)) is not None:
            yield f"the shipped file {_shown(path)} {reason}"
        elif count > 1:
            yield f"{count} shipped files have the path {_shown(path)}"
    for each in files:
        if each.content and each.blob is not None:
            yield f"the shipped file {_shown(each.path)} has content and names a blob that is its content: give one"
    paths = {each.path for each in files}
    for path in sorted(paths.intersection(str(parent) for each in paths for parent in _parents(each))):
        yield f"the shipped file {_shown(path)} has the path of a directory of others"


def check(files: Sequence[PythonFile]) -> None:
    """Raises ProgramError for files that can't be shipped, be it as blobs."""
    for reason in validation_errors(files, MAX_SHIPPED_BYTES):
        raise ProgramError(reason)


def collect_files(path: str) -> tuple[PythonFile, ...]:
    """A file, or all files of a directory, below the directory's name. Raises ProgramError.

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
        below = sorted(each for each in top.rglob("*") if each.is_file() and _wanted(each.relative_to(top)))
        if len(below) > MAX_FILES:
            raise ProgramError(
                f"{path} can't be shipped: it has {len(below):,} files, more than {MAX_FILES:,}"
            )
        files = []
        left = MAX_SHIPPED_BYTES
        for each in below:
            left -= each.stat().st_size
            if left < 0:
                raise ProgramError(
                    f"{path} can't be shipped: its files have more than {MAX_SHIPPED_BYTES:,} bytes; install "
                    "what is large "
                    "where the cluster runs, or let the job load it from storage"
                )
            content, inner = each.read_bytes(), PurePosixPath(*each.relative_to(top).parts)
            files.append(PythonFile(path=str(PurePosixPath(top.name, inner)), content=content))
            if _is_loose(top, inner):
                files.append(PythonFile(path=str(inner), content=content))
    except OSError as error:
        raise ProgramError(f"{path} can't be shipped: {error.strerror or error}") from error
    if not files:
        raise ProgramError(f"{path} can't be shipped: it is a directory without files")
    return tuple(files)


def _is_loose(top: Path, inner: PurePosixPath) -> bool:
    """Whether a file belongs to a module or package of a directory that is no package itself."""
    first = inner.parts[0]
    if (top / _INIT).exists() or _is_taken(first.partition(".")[0]):
        return False
    return first.endswith(".py") if len(inner.parts) == 1 else (top / first / _INIT).exists()


def merge_files(files: Iterable[PythonFile], more: Iterable[PythonFile]) -> tuple[PythonFile, ...]:
    """All of them, by path; where a path is in both, the file of `more`."""
    by_path = {each.path: each for each in (*files, *more)}
    return tuple(by_path[path] for path in sorted(by_path))


def unpack(files: Sequence[PythonFile], directory: Path, blobs: Mapping[str, str] | None = None) -> None:
    """Writes the files below a directory, which is made.

    `blobs`: key -> the local file with the content of those that are blobs. Raises OSError, ProgramError for a file
    that may not be, or a blob that is not among them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for each in files:
        # Whoever wrote the event: nothing is written but below the directory.
        if (reason := _path_fault(each.path)) is not None:
            raise ProgramError(f"the shipped file {_shown(each.path)} {reason}")
        path = directory.joinpath(*PurePosixPath(each.path).parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if each.blob is None:
            path.write_bytes(each.content)
        elif blobs is not None and each.blob in blobs:
            shutil.copyfile(blobs[each.blob], path)
        else:
            raise ProgramError(f"the shipped file {_shown(each.path)} is a blob, which nobody has fetched")


def import_from(directory: Path) -> None:
    """This process imports from the directory of unpacked files first, from now on.

    A module that was imported from elsewhere, by chance or because others were imported, makes room for one that is
    shipped under its name.
    """
    zips = sorted(str(each) for each in directory.glob("*.zip"))
    if zips and zipimport.zipimporter not in sys.path_hooks:
        sys.path_hooks.insert(0, zipimport.zipimporter)
    sys.path[:0] = [str(directory), *zips]
    importlib.invalidate_caches()
    names = {each.name.partition(".")[0] for each in directory.iterdir()}
    for name in list(sys.modules):
        if (top := name.partition(".")[0]) in names and not (
            _is_taken(top) or top in sys.stdlib_module_names
        ):
            del sys.modules[name]
    # Who only checks files, as services do, needs nothing of what functions are written with.
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
    top = parts[0].partition(".")[0]
    if _is_taken(top) and path.endswith(_SUFFIXES) and not path.endswith(".zip"):
        owner = "of Python's own" if top in standard_modules.NAMES else "that tailrace needs"
        return f"would hide the module {top} {owner}: rename it"
    return None


def _is_taken(name: str) -> bool:
    return name in _OURS or name in standard_modules.NAMES


def _parents(path: str) -> Iterable[PurePosixPath]:
    return list(PurePosixPath(path).parents)[:-1]


def _wanted(path: Path) -> bool:
    return not any(part in _PASSED_OVER or part.startswith(".") for part in path.parts)


def _shown(path: str) -> str:
    return repr(path[:80])
