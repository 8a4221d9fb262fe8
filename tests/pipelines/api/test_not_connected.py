"""A program that is started as a plain Python program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from tailrace import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).print()
env.execute("nowhere")
"""


def test_plain_program_says_how_to_run_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "this process is not connected to a cluster: start the program with `tailrace run PROGRAM.py`, or use"
        " StreamExecutionEnvironment.local()\n"
    )
