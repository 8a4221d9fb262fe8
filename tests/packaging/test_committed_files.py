"""Committed files are the same for every machine: they name no package registry and no path of one machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# Put together here, so that this file passes its own test.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("registry", "npmjs", "org"),
        ("proxy", "golang", "org"),
        ("crates", "io"),
    )
]


def test_lock_file_pins_every_package_and_has_no_address(root: Path) -> None:
    pin = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?==[A-Za-z0-9.!+_-]+( ; .+)?")
    lines = (root / "requirements.lock").read_text().splitlines()
    assert [line for line in lines if not pin.fullmatch(line)] == []


def test_lock_file_has_every_dependency(root: Path) -> None:
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.split(r"[\[<>=!~ ;]", line, maxsplit=1)[0].lower() for line in wanted}
    locked = {line.split("==")[0] for line in (root / "requirements.lock").read_text().splitlines()}
    assert names - locked == set()


def test_committed_files_have_no_registry_and_no_local_path(root: Path, tracked: list[str]) -> None:
    # A folder directly under / may well be named in prose; a deeper one names a machine.
    machine = [str(path) for path in (root, Path.home()) if len(path.parts) > 2]
    results = []
    for name in tracked:
        text = (root / name).read_bytes().decode("utf-8", "replace")
        results += [(name, word) for word in [*REGISTRIES, *machine] if word in text]
    assert results == []


def test_generated_files_are_not_committed(tracked: list[str]) -> None:
    made = re.compile(
        r"(^|/)(__pycache__|\.venv|\.links|\.make|build|dist)/|\.(pyc|jar|whl|jsa)$|^benchmarks/out/"
    )
    assert [name for name in tracked if made.search(name)] == []


def test_make_help_lists_every_public_target(root: Path) -> None:
    makefile = (root / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (\S+)$", makefile, re.MULTILINE)) - {"prerequisites", "warm"}
    report = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, check=True).stdout
    listed = set(re.findall(r"\x1b\[36m(\S+)", report))
    assert targets - listed == set()


def test_ci_runs_command_of_readme(root: Path) -> None:
    script = (root / ".ci" / "run").read_text()
    assert re.search(r"^make (\S+ )*lint$", script, re.MULTILINE)
    assert re.search(r"^make test$", script, re.MULTILINE)
