"""Wheels and archives among the files that a job ships: they are unpacked where the job's processes import from.

A wheel (`*.whl`, PEP 427) is unpacked into `site-packages`. An archive is unpacked into the directory of its path; if
that is a packed environment (venv-pack, conda-pack), its packages are imported, too.
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

from .errors import ProgramError

SITE_PACKAGES: Final = "site-packages"
"""The directory of all wheels of a job."""
WHEEL: Final = ".whl"
_ENDINGS: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_wheel(path: str) -> bool:
    """Whether a shipped path is a wheel, which is unpacked and imported from."""
    return path.endswith(WHEEL) and "/" not in path


def wheel_fault(name: str) -> str | None:
    """Returns why this Python can't import from a wheel of that name; None if it can."""
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        _, _, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return "has no name of a wheel, such as shop-1.0-py3-none-any.whl"
    if tags.isdisjoint(sys_tags()):
        here = (
            f"Python {sys.version_info.major}.{sys.version_info.minor} on {next(iter(sys_tags())).platform}"
        )
        return f"is not for {here}: ship one that is, or one for any platform"
    return None


def distribution_of(name: str) -> str:
    """Returns the normalized name of the distribution in a wheel of that name; empty for another name."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        return str(parse_wheel_filename(name)[0])
    except InvalidWheelFilename:
        return ""


def is_archive(file: Path) -> bool:
    """Whether a file is a zip or tar file."""
    return zipfile.is_zipfile(file) or tarfile.is_tarfile(file)


def archive_name(path: str) -> str:
    """Returns the name of an archive's directory: that of the file, without its ending. Raises ProgramError."""
    for ending in _ENDINGS:
        if path.endswith(ending) and len(path) > len(ending):
            return path[: -len(ending)]
    raise ProgramError(
        f"{path} can't be shipped as an archive: its name ends with none of {', '.join(_ENDINGS)}"
    )


def unpack_wheel(file: Path, directory: Path) -> None:
    """Unpacks a wheel into the job's `site-packages`. Raises ProgramError, OSError."""
    if (reason := wheel_fault(file.name)) is not None:
        raise ProgramError(f"the wheel {file.name} {reason}")
    unpack_archive(file, directory / SITE_PACKAGES)


def unpack_archive(file: Path, directory: Path) -> None:
    """Unpacks a zip or tar file into a directory, and nothing outside of it. Raises ProgramError, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    path = Path(archive.extract(member, directory))
                    if (mode := member.external_attr >> 16 & 0o777) and path.is_file():
                        path.chmod(mode | 0o600)
            return
        with tarfile.open(file) as packed:
            packed.extractall(directory, filter="data")
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise ProgramError(f"the archive {file.name} can't be unpacked: {error}") from error


def package_directories(directory: Path) -> list[Path]:
    """Returns the directories below a job's files that hold the packages of its wheels and packed environments.

    Raises ProgramError for an environment of another Python.
    """
    found = [directory / SITE_PACKAGES] if (directory / SITE_PACKAGES).is_dir() else []
    here = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for packages in sorted(directory.glob(f"*/lib/python3*/{SITE_PACKAGES}")):
        if (other := packages.parent.name) != here:
            raise ProgramError(
                f"the environment {packages.parents[2].name} is of {other}, and the cluster runs {here}: pack one of"
                f" {here}"
            )
        found.append(packages)
    return found
