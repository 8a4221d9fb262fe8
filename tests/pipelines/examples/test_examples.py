"""The examples give the expected output, in any order of events, also when tasks crash."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pipelines.examples.cases import (
    CASES,
    DATA,
    LATE_READING,
    Case,
    program,
    readme_commands,
    rows_of,
    shown,
    write_sales,
)

from tailrace.testing import MiniCluster

SEEDS = [None, 1, 2, 3]


class Run:
    """A run of an example in a MiniCluster to the end of its input."""

    def __init__(self, name: str, case: Case, seed: int | None, parallelism: int, folder: Path) -> None:
        self._case = case
        write_sales(folder / "sales")
        data = folder / "sales" if name == "sales_report" else DATA
        arguments = case.arguments.format(data=data, out=folder / "out", t="").split()
        crashes = 0 if seed is None else 3
        with MiniCluster(seed=seed, crashes=crashes, parallelism=parallelism) as cluster:
            for topic, messages in case.topics.items():
                for message in messages:
                    cluster.topic(topic).write([message.value], timestamp=message.timestamp_ms)
            job = cluster.run(program(name), arguments)
            if job.is_running:
                job.stop_with_savepoint(drain=True)
            self._cluster = cluster
            self.printed = Counter(job.printed)

    def values(self, topic: str) -> Counter[str]:
        """Counts the values of a topic."""
        return Counter(
            shown(self._case.decode(each.value or b"")) for each in self._cluster.topic(topic).messages()
        )

    def last(self, topic: str) -> dict[str, str]:
        """Returns the last value of each key."""
        messages = self._cluster.topic(topic).messages()
        return {(m.key or b"").decode(): shown(self._case.decode(m.value or b"")) for m in messages}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_example_gives_expected_output(name: str, seed: int | None, tmp_path: Path) -> None:
    case = CASES[name]
    run = Run(name, case, seed, 1 if seed is None else 2, tmp_path)
    if case.printed is not None:
        assert run.printed == case.printed
    assert {topic: run.values(topic) for topic in case.written} == case.written
    assert {topic: run.last(topic) for topic in case.last} == case.last
    if case.files is not None:
        assert rows_of(tmp_path / "out") == case.files


def test_reading_is_in_its_window_or_late(tmp_path: Path) -> None:
    case = CASES["late_data"]
    sent = [*case.topics["readings"], LATE_READING]
    readings = [json.loads(message.value) for message in sent]
    case = replace(case, topics={**case.topics, "readings": sent})
    seen = set()
    for seed in range(12):
        run = Run("late_data", case, seed, 1, tmp_path / str(seed))
        late = run.values("late")
        windows: dict[tuple[str, float], list[dict[str, float]]] = {}
        for reading in readings:
            if not late[shown(reading)]:
                windows.setdefault((reading["sensor"], reading["at"] // 60), []).append(reading)
        highest = Counter(shown(max(window, key=lambda r: r["degrees"])) for window in windows.values())
        assert run.values("highest") == highest
        seen.add(late.total())
    assert seen == {0, 1}, "that depends on what comes in together"


@pytest.mark.parametrize("name", CASES)
def test_readme_has_command_of_example(name: str) -> None:
    data = "sales/" if name == "sales_report" else "tests/pipelines/examples/data"
    arguments = CASES[name].arguments.format(data=data, out="report/", t="").split()
    assert readme_commands()[name] == [f"pipelines/examples/{name}.py", *arguments]


def test_readme_has_command_for_each_example() -> None:
    files = program("README").parent.glob("[a-z]*.py")
    programs = {path.stem for path in files if "env.execute(" in path.read_text()}
    assert readme_commands().keys() == programs


@pytest.mark.parametrize("name", CASES)
def test_example_is_short(name: str) -> None:
    assert len(program(name).read_text().splitlines()) < 40
