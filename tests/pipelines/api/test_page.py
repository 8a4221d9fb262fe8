"""docs/datastream-api.md: its examples, in order, are one program that prints what the page shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tailrace
from tailrace import StreamExecutionEnvironment
from tailrace.pipelines.graph.validation import validate
from tailrace.pipelines.testing.memory.cluster import run
from tailrace.schemas.types import JobGraph

PAGE = Path(tailrace.__file__).resolve().parent / "docs" / "datastream-api.md"
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<output>.*?)```)?", re.DOTALL)
EXAMPLES = list(EXAMPLE.finditer(PAGE.read_text()))


def by_sink(lines: list[str]) -> list[str]:
    """Groups lines by sink; the order between sinks is undefined."""
    return sorted(lines, key=lambda line: line.partition(">")[0])


def line_of(example: re.Match[str]) -> int:
    return example.string[: example.start()].count("\n") + 1


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Returns a program to which the examples are added; it is a module, so that its functions can be pickled."""
    module = ModuleType("page_of_the_datastream_api")
    module.__file__ = str(tmp_path_factory.mktemp("page") / "page.py")
    module.__dict__["examples"] = 0
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def execute(page: ModuleType, example: re.Match[str]) -> JobGraph | None:
    """Adds an example to the program; returns the graph of the job that it makes, if it makes one."""
    exec(compile(example["code"], str(page.__file__), "exec"), page.__dict__)
    env = page.env
    assert isinstance(env, StreamExecutionEnvironment)
    return env.get_job_graph() if env._program.pending else None


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"line {line_of(example)}" for example in EXAMPLES])
def test_example_prints_what_page_shows(page: ModuleType, example: re.Match[str]) -> None:
    number = EXAMPLES.index(example)
    for earlier in EXAMPLES[page.examples : number]:
        # Another process tests it.
        execute(page, earlier)
    graph = execute(page, example)
    page.__dict__["examples"] = max(page.examples, number + 1)
    assert graph is None or validate(graph) == []
    if example["output"] is not None:
        assert graph is not None
        printed = [
            f"{row['identifier'] + ':' if row['identifier'] else ''}{row['subtask']}> {row['text']}"
            for row in run(graph).printed
        ]

        assert by_sink(printed) == by_sink(example["output"].splitlines())
