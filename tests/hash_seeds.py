"""Runs Python code in another process, with a hash seed of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def output_with_hash_seed(program: str, seed: str) -> str:
    """Returns what the code prints. Raises CalledProcessError."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
