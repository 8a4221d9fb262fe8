"""Runs programs in Java from their source."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tailrace.infra.prerequisites import find_java

TIMEOUT_S = 120


@functools.cache
def java_compiles() -> bool:
    """Returns whether there is a JDK: a JRE alone cannot launch a source file."""
    modules = subprocess.run([find_java(), "--list-modules"], capture_output=True, text=True, check=True)
    return "jdk.compiler" in modules.stdout


def run_java(program: Path, classpath: Iterable[Path], *arguments: str) -> str:
    """Returns what a program of one file prints. Skips the test if there is no JDK."""
    if not java_compiles():
        pytest.skip("no JDK on this machine, only a JRE: the single-file Java program cannot be launched")
    command = [find_java(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    result = subprocess.run(
        [*command, "-cp", os.pathsep.join(map(str, classpath)), str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
