"""docs/datastream-api.md: its examples, in order, are one program; what they print is what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pipelines.memory_cluster import run

import tailrace
from tailrace import StreamExecutionEnvironment
from tailrace.pipelines.graph.validation import validate

PAGE = Path(tailrace.__file__).resolve().parent / "docs" / "datastream-api.md"
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)
EXAMPLES = list(EXAMPLE.finditer(PAGE.read_text()))


def by_sink(lines: list[str]) -> list[str]:
    """Each sink prints in order; between sinks there is none."""
    return sorted(lines, key=lambda line: line.partition(">")[0])


def line_of(example: re.Match[str]) -> int:
    return example.string[: example.start()].count("\n") + 1


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A program that the examples are added to; a module, so that its functions can be pickled."""
    module = ModuleType("page_of_the_datastream_api")
    module.__file__ = str(tmp_path_factory.mktemp("page") / "page.py")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"line {line_of(example)}" for example in EXAMPLES])
def test_an_example_does_what_the_page_says(page: ModuleType, example: re.Match[str]) -> None:
    exec(compile(example["code"], str(page.__file__), "exec"), page.__dict__)
    env = page.env
    assert isinstance(env, StreamExecutionEnvironment)
    graph = env.get_job_graph() if env._program.pending else None
    assert graph is None or validate(graph) == []
    if example["output"] is not None:
        assert graph is not None
        printed = [
            f"{each['identifier'] + ':' if each['identifier'] else ''}{each['subtask']}> {each['text']}"
            for each in run(graph).printed
        ]

        assert by_sink(printed) == by_sink(example["output"].splitlines())
