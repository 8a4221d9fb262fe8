"""The API reference has every public name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace

pytest.importorskip("pdoc")


def test_api_reference_has_every_public_name(root: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(root / "docs" / "api_docs.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "tailrace.html").read_text("utf-8")
    results = set(re.findall(r'id="([\w.]+)"', page))
    assert set(tailrace.__all__) - results == set()
    assert {"StreamExecutionEnvironment.execute", "DataStream.flat_map"} <= results
