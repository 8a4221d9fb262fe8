"""Fixtures: the checkout as git sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Returns the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tracked(root: Path) -> list[str]:
    """Returns the files that git tracks and that exist, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout")
    return [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
