"""Resolves a requirements file into the wheels that a job ships (PyFlink's `set_python_requirements`).

pip resolves and builds them once, where the program is submitted; every TaskExecutor unpacks the same wheels. The
packages that tailrace itself needs keep the versions that are installed here, and are not shipped: processes of jobs
have imported them already.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from ...schemas.types import PythonFile
from ..graph.archives import distribution_of
from ..graph.errors import ProgramError
from ..graph.python_files import MAX_SHIPPED_BYTES

_SHOWN_LINES = 3


def resolve_requirements(path: str) -> tuple[PythonFile, ...]:
    """Returns the wheels of a requirements file, with all that they need. pip reports its progress on stderr.

    Raises ProgramError if there is no such file, or if pip does not resolve it.
    """
    if not Path(path).is_file():
        raise ProgramError(f"{path} can't be resolved: there is no such requirements file")
    installed = _installed()
    with tempfile.TemporaryDirectory(prefix="tailrace-requirements-") as directory:
        constraints = Path(directory, "constraints.txt")
        constraints.write_text("".join(f"{name}=={installed[name]}\n" for name in sorted(installed)))
        wheels = Path(directory, "wheels")
        wheels.mkdir()
        _run_pip(path, constraints, wheels)
        found = [wheel for wheel in sorted(wheels.iterdir()) if distribution_of(wheel.name) not in installed]
        if sum(wheel.stat().st_size for wheel in found) > MAX_SHIPPED_BYTES:
            raise ProgramError(
                f"the packages of {path} have more than {MAX_SHIPPED_BYTES:,} bytes: install what is large where the"
                " cluster runs"
            )
        return tuple(PythonFile(path=wheel.name, content=wheel.read_bytes()) for wheel in found)


def _run_pip(path: str, constraints: Path, wheels: Path) -> None:
    command = [
        *(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--requirement", path, "--constraint", str(constraints), "--wheel-dir", str(wheels)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        lines = []
        for line in pip.stdout:
            lines.append(line.strip())
            print(line, end="", file=sys.stderr, flush=True)
    if pip.returncode:
        reasons = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")] or lines
        raise ProgramError(f"pip does not resolve {path}: {'; '.join(reasons[-_SHOWN_LINES:])}")


@cache
def _installed() -> dict[str, str]:
    """Returns the distributions that tailrace needs, by normalized name, with the versions that are installed."""
    found: dict[str, str] = {}
    waiting = ["tailrace", "pip"]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
        waiting.extend(_needed_by(name))
    del found["tailrace"]
    return found


def _needed_by(name: str) -> Iterator[str]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    for text in distribution(name).requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield canonicalize_name(needed.name)
