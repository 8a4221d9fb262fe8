"""Golden logs are folded to the same states by every Python of this machine that tailrace supports.

CI runs all tests under each supported Python, and golden logs have recorded hashes (tests/services/history). This test
finds differences before that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fold_golden_logs
import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PACKAGES = ("fastavro", "immutables", "msgspec")
"""What folding a file needs."""
MINORS = (11, 12, 13)
FRAMES = 60


def other_pythons() -> dict[int, str]:
    """Returns minor version -> interpreter, for supported versions other than this one."""
    found = {}
    for minor in MINORS:
        if minor != sys.version_info.minor and (path := next(interpreters(f"3.{minor}"), None)) is not None:
            found[minor] = path
    return found


def interpreters(version: str) -> Iterator[str]:
    """Yields the interpreters of a version: on the path, of pyenv, and of uv."""
    on_path = shutil.which(f"python{version}")
    managed = [
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        *Path.home().glob(f".local/share/uv/python/cpython-{version}.*/bin/python3"),
    ]
    for path in (on_path, *sorted(map(str, managed), reverse=True)):
        # A shim of pyenv fails for a version that is not selected.
        if (
            path is not None
            and subprocess.run([path, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL).returncode
            == 0
        ):
            yield path


def with_packages(python: str, folder: Path) -> str:
    """Returns the interpreter of a new environment with the pinned packages."""
    pinned = [
        line
        for line in (ROOT / "requirements.lock").read_text("utf-8").splitlines()
        if line.partition("==")[0] in PACKAGES
    ]
    assert len(pinned) == len(PACKAGES)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", *pinned], check=True)
    return str(folder / "bin" / "python")


def fold(python: str, release: Path, path: str) -> dict[str, str]:
    result = subprocess.run(
        [python, fold_golden_logs.__file__, str(release), str(FRAMES)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    hashes: dict[str, str] = json.loads(result.stdout)
    return hashes


@pytest.mark.soak
def test_golden_logs_have_same_states_under_every_python(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "tailrace").symlink_to(ROOT)
    pythons = {sys.version_info.minor: sys.executable}
    for minor, python in other_pythons().items():
        pythons[minor] = with_packages(python, tmp_path / f"3.{minor}")
    for release in sorted(GOLDEN.iterdir()):
        expected = fold_golden_logs.fold_all(release)
        for minor, python in pythons.items():
            found = fold(python, release, str(tmp_path / "packages"))
            assert found == expected, f"Python 3.{minor} folds {release} to other states"
