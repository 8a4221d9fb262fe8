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

from tailrace.pipelines.api.build import build_file
from tailrace.pipelines.testing.memory import cluster as memory_cluster
from tailrace.pipelines.testing.memory.cluster import Message, Outcome

SEEDS = [None, 1, 2, 3]


def outcome_of(name: str, case: Case, seed: int | None, parallelism: int, folder: Path) -> Outcome:
    write_sales(folder / "sales")
    data = folder / "sales" if name == "sales_report" else DATA
    arguments = case.arguments.format(data=data, out=folder / "out", t="").split()
    graph = build_file(str(program(name)), arguments, parallelism)
    topics = {
        topic: [[Message(message.value, None, message.timestamp_ms) for message in messages]]
        for topic, messages in case.topics.items()
    }
    return memory_cluster.run(graph, topics=topics, seed=seed, crashes=3)


def values(case: Case, outcome: Outcome, topic: str) -> Counter[str]:
    return Counter(shown(case.decode(message.value)) for message in outcome.messages(topic))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_example_gives_expected_output(name: str, seed: int | None, tmp_path: Path) -> None:
    case = CASES[name]
    outcome = outcome_of(name, case, seed, 1 if seed is None else 2, tmp_path)
    if case.printed is not None:
        assert Counter(message["text"] for message in outcome.printed) == case.printed
    for topic, expected in case.written.items():
        assert values(case, outcome, topic) == expected
    for topic, last in case.last.items():
        result = {(m.key or b"").decode(): shown(case.decode(m.value)) for m in outcome.messages(topic)}
        assert result == last
    if case.files is not None:
        assert rows_of(tmp_path / "out") == case.files


def test_reading_is_in_its_window_or_late(tmp_path: Path) -> None:
    case = CASES["late_data"]
    sent = [*case.topics["readings"], LATE_READING]
    readings = [json.loads(message.value) for message in sent]
    seen = set()
    for seed in range(12):
        outcome = outcome_of(
            "late_data",
            replace(case, topics={**case.topics, "readings": sent}),
            seed,
            1,
            tmp_path / str(seed),
        )
        late = values(case, outcome, "late")
        windows: dict[tuple[str, float], list[dict[str, float]]] = {}
        for reading in readings:
            if not late[shown(reading)]:
                windows.setdefault((reading["sensor"], reading["at"] // 60), []).append(reading)
        highest = Counter(shown(max(window, key=lambda r: r["degrees"])) for window in windows.values())
        assert values(case, outcome, "highest") == highest
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
