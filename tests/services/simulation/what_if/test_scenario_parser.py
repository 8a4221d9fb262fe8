"""Scenario files: nothing is ignored silently, and every error has its position and remedy."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import tailrace
from tailrace.services.simulation.what_if.scenario import (
    AS_RECORDED,
    Cancel,
    Fail,
    Join,
    Kill,
    KillLeader,
    Scenario,
    ScenarioError,
    Submit,
)
from tailrace.services.simulation.what_if.scenario_parser import load_scenario, parse_scenario

from ...simulated_cluster.cluster import SECOND

WHOLE = """
until: 30 min
seed: 7
configuration:
  cluster.evenly-spread-out-slots: true
  slot.request.timeout: 30s
tasks:
  start: 300 ms
  run: 2 min
events:
  - {at: 5 s, kill: te-1}
  - {at: 6 s, kill: te-2, silent: true}
  - {at: 10 s, join: {count: 2, slots: 4}}
  - {at: 11 s, join: {name: te-1}}
  - {at: 20 s, submit: {like: job-1, parallelism: 8, as: more}}
  - {at: 21 s, submit: {like: job-1}}
  - {at: 30 s, fail: {job: job-1, task: "Source (1/2)", reason: a bad line}}
  - {at: 40 s, cancel: job-1}
  - {at: 50 s, kill_leader: dispatcher, for: 5 s}
"""


def test_scenario_with_all_fields_is_parsed() -> None:
    scenario = parse_scenario(WHOLE)
    assert scenario.until == 1_800 * SECOND
    assert scenario.seed == 7
    assert scenario.configuration == {
        "cluster.evenly-spread-out-slots": "true",
        "slot.request.timeout": "30 s",
    }
    assert (scenario.start, scenario.run) == (300_000, 120 * SECOND)
    assert [event.at // SECOND for event in scenario.events] == [5, 6, 10, 11, 20, 21, 30, 40, 50]
    assert [event.action for event in scenario.events] == [
        Kill("te-1"),
        Kill("te-2", silent=True),
        Join(("joined-1", "joined-2"), 4),
        Join(("te-1",), None),
        Submit("job-1", "more", 8),
        Submit("job-1", "what-if-2"),
        Fail("job-1", "Source (1/2)", "a bad line"),
        Cancel("job-1"),
        KillLeader("dispatcher", 5 * SECOND),
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "events: []"])
def test_empty_scenario_changes_nothing(text: str) -> None:
    assert parse_scenario(text) == Scenario()
    assert Scenario().run == AS_RECORDED


def event(text: str) -> str:
    """Returns the third line of a scenario."""
    return f"events:\n  - {{at: 1 s, cancel: j}}\n  - {{{text}}}\n"


MISTAKES = {
    "util: 3 s": (1, "the scenario", "'util' is unknown; did you mean until?"),
    "until: 5": (1, "until", "give a number and its unit, as in 5 s"),
    "until: soon": (1, "until", "'soon' is no time"),
    "until: [1 s]": (1, "until", "give a text"),
    "until:": (1, "until", "give a text"),
    "until: 1 s\nuntil: 2 s": (2, "until", "it is there twice"),
    "seed: -1": (1, "seed", "give a whole number from 0"),
    "seed: x": (1, "seed", "'x' is not possible"),
    "- a list": (1, "the scenario", "give keys and values; it may have until, seed"),
    "configuration: fast": (1, "configuration", "give options and their values"),
    "configuration:\n  slot.request.timeot: 1 s": (2, "configuration", "did you mean slot.request.timeout?"),
    "configuration:\n  slot.request.timeout: never": (2, "slot.request.timeout", "duration such as"),
    "configuration:\n  slot: {request.timeout: 1 s}": (2, "configuration", "'slot' is no option"),
    "tasks: {run: always}": (1, "tasks.run", "as-recorded or forever"),
    "tasks: {begin: 1 s}": (1, "tasks", "'begin' is unknown"),
    "events: {at: 1 s}": (1, "events", "give a list"),
    event("at: 1 s"): (3, "an event", "it has nothing that happens: give exactly one of kill"),
    event("kill: te-1"): (3, "kill", "when? Give `at`"),
    event("at: 1 s, kill: a, cancel: b"): (3, "an event", "it has kill and cancel"),
    event("at: 1 s, explode: a"): (3, "an event", "'explode' is unknown"),
    event("at: 1 s, kill: a b"): (3, "kill", "'a b' is no id"),
    event("at: 1 s, kill: te-1, silent: maybe"): (3, "silent", "give true or false"),
    event("at: 1 s, cancel: j, for: 1 s"): (3, "for", "it does not go with cancel"),
    event("at: -1 s, kill: te-1"): (3, "at", "'-1 s' is no time"),
    event("at: 1 s, join: {count: 0}"): (3, "count", "give a whole number from 1 to 10,000"),
    event("at: 1 s, join: {slots: 9999}"): (3, "slots", "from 1 to 1,024"),
    event("at: 1 s, join: {count: 1000, slots: 1000}"): (3, "count", "from 1 to 100"),
    event("at: 1 s, join: {name: a, count: 2}"): (3, "join", "leave out name or count"),
    event("at: 1 s, join: 3"): (3, "join", "give keys and values"),
    event("at: 1 s, submit: {parallelism: 2}"): (3, "submit", "like which job?"),
    event("at: 1 s, submit: {like: j, parallelism: x}"): (3, "parallelism", "'x' is not possible"),
    event("at: 1 s, fail: {job: j}"): (3, "fail", "task is missing"),
    event("at: 1 s, kill_leader: king"): (3, "kill_leader", "'king' is no role of masters"),
    "events: [": (1, "", "this is no YAML"),
    "a: b: c": (1, "", "this is no YAML"),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_error_has_position_and_remedy(text: str) -> None:
    line, key, what = MISTAKES[text]
    with pytest.raises(ScenarioError) as error:
        parse_scenario(text, "s.yaml")
    report = str(error.value)
    assert report.startswith(f"s.yaml:{line}"), report
    assert f"{key}" in report
    assert what in report
    assert "\n" not in report


@pytest.mark.parametrize("text", ["[" * 5_000, "{a: " * 5_000])
def test_deeply_nested_yaml_is_rejected_in_one_line(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"^s\.yaml: brackets stand in brackets without end"):
        parse_scenario(text, "s.yaml")


def test_yaml_aliases_do_not_expand() -> None:
    """Each level has ten references to the one before: a billion values if they were written out."""
    levels = [f"- &l{level} [{', '.join([f'*l{level - 1}'] * 10)}]" for level in range(1, 10)]
    with pytest.raises(ScenarioError, match=r"^s\.yaml:2: an event: give keys and values"):
        parse_scenario("\n".join(["events:", "- &l0 [1]", *levels]), "s.yaml")


def test_missing_or_binary_scenario_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.yaml can't be read: No such file"):
        load_scenario(tmp_path / "nowhere.yaml")
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="no text in UTF-8"):
        load_scenario(tmp_path / "x.yaml")


@pytest.mark.parametrize("body", ["&a [*a]", "{? [1] : 2}", "!!python/object:os.system {}", "\x00"])
def test_unusual_yaml_is_rejected_as_any_other_error(body: str) -> None:
    with pytest.raises(ScenarioError):
        parse_scenario(f"events: {body}")


ROOT = Path(tailrace.__file__).parent


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "what-if").glob("*.yaml")), ids=lambda path: path.name
)
def test_example_is_valid_scenario(path: Path) -> None:
    assert load_scenario(path).events


def test_scenario_of_documentation_is_valid() -> None:
    page = (ROOT / "docs" / "history.md").read_text("utf-8")
    begin = page.index("    until: 15 min")
    block = page[begin : page.index("\n\n", begin)]
    scenario = parse_scenario(textwrap.dedent(block))
    assert len({type(event.action) for event in scenario.events}) == 6
