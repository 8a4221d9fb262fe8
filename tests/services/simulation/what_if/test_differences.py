"""The sentences about what a scenario changes."""

from __future__ import annotations

import pytest

from tailrace.services.simulation.what_if.differences import describe_differences
from tailrace.services.simulation.what_if.scenario_parser import parse_scenario
from tailrace.services.simulation.what_if.what_if import simulate

from .test_scenarios import calm, changed, job


def test_empty_scenario_differs_in_nothing() -> None:
    assert describe_differences(changed("")) == ("The simulation gives what really happened.",)


def test_end_of_log_has_nothing_to_compare_with() -> None:
    assert describe_differences(simulate(calm(), parse_scenario(""))) == (
        "The log has no event in this time: there is nothing to compare with.",
    )


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (
            "events: [{at: 5 s, join: {count: 2, slots: 4}}]",
            "It waits for slots for ",
        ),
        ("events: [{at: 5 s, join: {count: 2, slots: 4}}]", "There are at most 12 slots instead of 4."),
        ("events: [{at: 7 s, cancel: j1}]", "j1) ends otherwise: CANCELED after "),
        (
            "events: [{at: 1 s, submit: {like: j1, as: more}}]",
            "more) is only in the simulation: FINISHED after ",
        ),
        ("until: 1 s", "The log has no event in this time"),
    ],
)
def test_difference_is_told(scenario: str, sentence: str) -> None:
    found = changed(scenario)
    assert any(sentence in each for each in describe_differences(found)), describe_differences(found)


def test_restart_and_earlier_end_are_told() -> None:
    killed = describe_differences(
        changed("{events: [{at: 1 s, kill: te-1}, {at: 2 s, join: {count: 4, slots: 4}}]}")
    )
    assert any("restarts once instead of never." in each for each in killed), killed
    joined = changed("events: [{at: 5 s, join: {count: 2, slots: 4}}]")
    told = describe_differences(joined)
    assert job(joined, "j2").ended < job(joined, "j2", really=True).ended
    assert any(" earlier: FINISHED after " in each for each in told), told
