"""A machine that lacks something is told what, and the command that installs it."""

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


def test_a_machine_that_has_all_is_passed_in_silence() -> None:
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_missing_part_is_one_line_with_its_install_command(tmp_path: Path) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\n")
    apt.chmod(0o755)

    done = run(PATH=str(tmp_path))

    assert done.returncode == 1
    java, make = done.stderr.splitlines()
    assert java.startswith("tailrace: Java 17 or newer is missing (no java on the PATH): install it with `")
    assert "apt-get install -y" in java
    assert "apt-get install -y make" in make


@pytest.mark.parametrize(
    ("says", "named"),
    [('openjdk version "11.0.22" 2024-01-16', "is 11:"), ('java version "1.8.0_401"', "is 8:")],
)
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path, says: str, named: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)

    done = run(JAVA_HOME=str(tmp_path))

    assert done.returncode == 1
    assert f"{java} {named}" in done.stderr


def test_a_java_home_without_java_is_not_passed_over_for_the_path(tmp_path: Path) -> None:
    # Spark takes JAVA_HOME first too, and would fail later with something harder to read.
    done = run(JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert f"JAVA_HOME={tmp_path} has no bin/java" in done.stderr


def test_a_python_that_is_too_old_is_named_with_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(
        prerequisites.MissingPrerequisite, match=r"Python 3\.11 or newer is needed and .* is 3\.9\.2"
    ):
        prerequisites.check_python()
