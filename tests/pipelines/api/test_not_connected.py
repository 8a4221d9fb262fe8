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


def test_it_says_how_to_start_it_and_no_more(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "this process is connected to no cluster: start the program with `tailrace run PROGRAM.py`\n"
    )
