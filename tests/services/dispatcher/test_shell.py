"""The Dispatcher's shell: what it says when its process has become the leader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from immutables import Map

from tailrace.schemas.client import FeatureLevelRejected
from tailrace.schemas.everyone import ConfigurationChanged, FeatureLevelRaised
from tailrace.services.core.feature_level import FEATURE_LEVEL
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher.role import RaiseFeatureLevel
from tailrace.services.dispatcher.shell import DispatcherShell
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.dispatcher.submissions_topic import AdmittedPositions

OURS = {"slot.idle.timeout": "7 s"}


class Submissions:
    """Notes what it was told."""

    def __init__(self) -> None:
        self.followed: list[AdmittedPositions] = []

    def start(self, admitted: AdmittedPositions) -> None:
        assert self.followed == [], "it is started once"
        self.followed.append(admitted)

    def follow(self, admitted: AdmittedPositions) -> None:
        assert self.followed, "it is started first"
        self.followed.append(admitted)

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("logged", "ours", "said"),
    [
        (None, OURS, [OURS]),
        ({"slot.idle.timeout": "8 s"}, OURS, [OURS]),
        ({}, OURS, [OURS]),
        (OURS, OURS, []),
        (None, {}, [{}]),
        (OURS, None, []),
    ],
)
def test_a_leader_says_by_what_configuration_it_goes_and_admits_nothing_before_the_log_has_it(
    logged: Mapping[str, str] | None, ours: Mapping[str, str] | None, said: list[Mapping[str, str]]
) -> None:
    heard: list[OutgoingEvent] = []
    submissions: Any = Submissions()
    shell = DispatcherShell(lambda _, owed: heard.append(owed), submissions, ours, elected=3)
    try:
        for _ in range(2):
            shell.perform("dispatcher", [], DispatcherState(configuration=logged))
        assert len(submissions.followed) == (0 if said else 2)
        read_back = DispatcherState(
            configuration=logged if ours is None else ours, positions=Map({0: 7}), submissions_topic_id="t"
        )
        for _ in range(2):
            shell.perform("dispatcher", [], read_back)
    finally:
        shell.close()
    begins = [FeatureLevelRaised(level=FEATURE_LEVEL)] if said and logged is None else []
    assert [each.body for each in heard] == [
        *begins,
        *(ConfigurationChanged(configuration=each) for each in said),
    ]
    assert {(each.recipient, each.cause) for each in heard} == ({("*", 3)} if said else set())
    assert submissions.followed[-1] == AdmittedPositions("t", Map({0: 7}))


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (FEATURE_LEVEL, FeatureLevelRaised),
        (FEATURE_LEVEL + 1, None),
        (FEATURE_LEVEL + 2, FeatureLevelRejected),
        (2**31 - 1, FeatureLevelRejected),
    ],
)
def test_a_level_that_the_next_release_can_not_know_is_refused(level: int, said: type | None) -> None:
    heard: list[OutgoingEvent] = []
    shell = DispatcherShell(lambda _, owed: heard.append(owed), Submissions())  # type: ignore[arg-type]
    try:
        shell.perform("dispatcher", [RaiseFeatureLevel(level, 7, "client/c")], DispatcherState())
    finally:
        shell.close()
    assert [type(each.body) for each in heard] == ([] if said is None else [said])
    assert [(each.recipient, each.cause) for each in heard] in (
        [],
        [("client/c" if said is FeatureLevelRejected else "*", 7)],
    )
