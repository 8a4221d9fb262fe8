"""The error about a missing prerequisite names it, and the command that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.infra import prerequisites

SCRIPT = Path(prerequisites.__file__)


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    env = {**{k: v for k, v in os.environ.items() if k != "JAVA_HOME"}, **environment}
    # -S -E: as a bare system Python would run it, without this environment's packages.
    return subprocess.run(
        [sys.executable, "-S", "-E", str(SCRIPT)], env=env, capture_output=True, text=True, check=False
    )


def test_complete_machine_has_no_errors() -> None:
    result = run()
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_missing_prerequisite_is_one_line_with_install_command(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\n")
    apt.chmod(0o755)

    result = run(PATH=str(tmp_path))

    assert result.returncode == 1
    java, make = result.stderr.splitlines()
    assert java.startswith("tailrace: Java 17 or newer is missing (no java on the PATH): install it with `")
    assert "apt-get install -y" in java
    assert "apt-get install -y make" in make


@pytest.mark.parametrize(
    ("says", "named"),
    [('openjdk version "11.0.22" 2024-01-16', "is 11:"), ('java version "1.8.0_401"', "is 8:")],
)
def test_old_java_is_reported_with_version(tmp_path: Path, says: str, named: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)

    result = run(JAVA_HOME=str(tmp_path))

    assert result.returncode == 1
    assert f"{java} {named}" in result.stderr


def test_java_home_without_java_is_reported_despite_java_on_path(tmp_path: Path) -> None:
    # Spark takes JAVA_HOME first too, and would fail later with something harder to read.
    result = run(JAVA_HOME=str(tmp_path))
    assert result.returncode == 1
    assert f"JAVA_HOME={tmp_path} has no bin/java" in result.stderr


def test_old_python_is_reported_with_required_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(
        prerequisites.MissingPrerequisite, match=r"Python 3\.11 or newer is required, but .* is 3\.9\.2"
    ):
        prerequisites.check_python()
