"""`.ci/release` builds nothing unless tag, version, changelog, schemas and golden logs agree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

VERSION = "7.8.9"
CHANGELOG = f"""# Changelog

## Unreleased

## {VERSION} - 2031-02-03

### Added

- Something new.

## 7.8.8 - 2031-01-01

- Something old.
"""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """Returns a small checkout that is ready for a release. Its `python` prints its arguments instead of building."""
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy2(root / ".ci" / "release", folder / ".ci")
    (folder / "infra").mkdir()
    (folder / "infra/version.py").write_text(f'__version__ = "{VERSION}"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    (folder / "schemas" / "released").mkdir(parents=True)
    (folder / "schemas" / "released" / f"{VERSION}.json").write_text("{}")
    (folder / "tests" / "golden" / VERSION).mkdir(parents=True)
    (folder / "tests" / "golden" / VERSION / "log.avro").write_text("")
    (folder / ".gitignore").write_text("/dist/\n")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nmkdir -p dist\necho "$@"\n')
    python.chmod(0o755)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Release")


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(folder / ".ci" / "release"), *arguments],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHON": str(folder.parent / "python")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_release_notes_are_changelog_section_of_version(checkout: Path) -> None:
    result = release(checkout, f"v{VERSION}")
    assert result.returncode == 0, result.stderr
    assert "-m build" in result.stdout
    assert (checkout / "dist" / "NOTES.md").read_text().strip() == "### Added\n\n- Something new."


@pytest.mark.parametrize("tag", ["v7.8.8", VERSION, "v7.8.9.dev0"])
def test_release_rejects_tag_that_differs_from_version(checkout: Path, tag: str) -> None:
    assert_refused(
        release(checkout, tag), f"the tag is {tag}, but __version__ in infra/version.py is {VERSION}"
    )


def test_release_rejects_development_version(checkout: Path) -> None:
    (checkout / "infra/version.py").write_text(f'__version__ = "{VERSION}.dev0"\n')
    commit(checkout)
    assert_refused(release(checkout, f"v{VERSION}.dev0"), "is no version of a release")


def test_release_rejects_missing_schemas(checkout: Path) -> None:
    (checkout / "schemas" / "released" / f"{VERSION}.json").unlink()
    assert_refused(release(checkout, f"v{VERSION}"), f"schemas/released/{VERSION}.json is missing")


def test_release_rejects_missing_golden_logs(checkout: Path) -> None:
    shutil.rmtree(checkout / "tests" / "golden" / VERSION)
    assert_refused(release(checkout, f"v{VERSION}"), f"tests/golden/{VERSION} is missing")


@pytest.mark.parametrize(
    "text", ["", f"## {VERSION} - 2031-02-03\n\n## 7.8.8\n\nOld.\n", "## 7.8.90 - x\n\nNo.\n"]
)
def test_release_rejects_missing_changelog_section(checkout: Path, text: str) -> None:
    (checkout / "CHANGELOG.md").write_text(text)
    commit(checkout)
    assert_refused(
        release(checkout, f"v{VERSION}"), f"CHANGELOG.md has no text under '## {VERSION} - <date>'"
    )


def test_release_rejects_uncommitted_changes(checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    assert_refused(release(checkout, f"v{VERSION}"), "the checkout has changes that are not committed")


def assert_refused(done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "-m build" not in done.stdout
