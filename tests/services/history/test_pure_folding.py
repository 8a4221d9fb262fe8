"""Folding depends on states and events only: not on the stack, the interpreter, or the checks of this release."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fold_golden_logs
import pytest

GOLDEN = Path(__file__).parents[2] / "golden"
FRAMES = 60
"""What folding a small log may use, with reading the file; the stack of a process holds 1,000."""


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
def test_fold_needs_no_deep_stack_no_module_names_and_no_checks(version: str) -> None:
    result = subprocess.run(
        [sys.executable, fold_golden_logs.__file__, str(GOLDEN / version), str(FRAMES)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == fold_golden_logs.fold_all(GOLDEN / version)
