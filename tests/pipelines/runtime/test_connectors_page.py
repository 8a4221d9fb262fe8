"""The examples of docs/connectors.md are a valid program."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tailrace import StreamExecutionEnvironment

PAGE = Path(__file__).parents[3] / "docs" / "connectors.md"


def test_examples_of_page_are_one_program_that_translates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks))
    spec = importlib.util.spec_from_file_location("program", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "program", module)
    spec.loader.exec_module(module)
    env = module.env
    assert isinstance(env, StreamExecutionEnvironment)
    kinds = {operator.kind for vertex in env.get_job_graph().vertices for operator in vertex.operators}
    module.test_sensors()
    (tmp_path / "lines").mkdir()
    module.test_lines(tmp_path / "lines")
    assert kinds >= {"files", "file_sink", "foreach", "map_batches", "custom_source", "transactional_sink"}
