"""Finds the data files that were shipped with a job."""

from __future__ import annotations

from pathlib import Path

directory: Path | None = None
"""Set in processes that import from shipped files, before anything of the job is loaded."""


def shipped_file(path: str) -> Path:
    """Returns the local path of a file that was shipped with the job (`add_python_file`, `--py-file`), by its shipped
    path. A shipped archive is a directory, by its name without its ending.

    Call it where the job runs: inside functions and their `open`, not while the program describes the job. Raises
    FileNotFoundError.
    """
    if directory is None:
        raise FileNotFoundError(
            f"{path} does not exist: this process imports from no shipped files. Call shipped_file inside a function "
            "of the job, and ship the file with add_python_file or --py-file"
        )
    found = directory / path
    if not found.is_relative_to(directory) or ".." in Path(path).parts or not found.exists():
        names = sorted(shipped.name for shipped in directory.iterdir() if not shipped.name.startswith("."))
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise FileNotFoundError(
            f"no shipped file has the path {path!r}: ship it with add_python_file or --py-file. Shipped are: {shown}"
        )
    return found
