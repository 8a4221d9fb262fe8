"""The Dispatcher's shell: its events when its process has become the leader."""

from __future__ import annotations

from collections.abc import Mapping
from queue import Queue
from typing import Any

import pytest
from immutables import Map

from tailrace.infra.version import __version__
from tailrace.schemas.client import FeatureLevelRejected
from tailrace.schemas.everyone import ConfigurationChanged, FeatureLevelRaised
from tailrace.services.core.feature_level import FEATURE_LEVEL
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.dispatcher.role import RaiseFeatureLevel
from tailrace.services.dispatcher.shell import DispatcherShell
from tailrace.services.dispatcher.state import DispatcherState
from tailrace.services.dispatcher.submissions_topic import AdmittedPositions, AdmittedTopics

OURS = {"slot.idle.timeout": "7 s"}


class Submissions:
    """Records its calls."""

    def __init__(self) -> None:
        self.followed: list[AdmittedTopics] = []

    def start(self, admitted: AdmittedTopics) -> None:
        assert self.followed == [], "it is started once"
        self.followed.append(admitted)

    def follow(self, admitted: AdmittedTopics) -> None:
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
def test_leader_reports_configuration_and_admits_nothing_before_it_is_in_log(
    logged: Mapping[str, str] | None, ours: Mapping[str, str] | None, said: list[Mapping[str, str]]
) -> None:
    events: list[OutgoingEvent] = []
    submissions: Any = Submissions()
    shell = DispatcherShell(lambda _, owed: events.append(owed), submissions, ours, elected=3)
    try:
        for _ in range(2):
            shell.perform("dispatcher", [], DispatcherState(configuration=logged))
        assert len(submissions.followed) == (0 if said else 2)
        read_back = DispatcherState(
            configuration=logged if ours is None else ours,
            admitted=Map({"": AdmittedPositions("t", Map({0: 7}))}),
        )
        for _ in range(2):
            shell.perform("dispatcher", [], read_back)
    finally:
        shell.close()
    begins = [FeatureLevelRaised(level=FEATURE_LEVEL, release=__version__)] if said and logged is None else []
    assert [event.body for event in events] == [
        *begins,
        *(ConfigurationChanged(configuration=row) for row in said),
    ]
    assert {(event.recipient, event.cause) for event in events} == ({("*", 3)} if said else set())
    assert submissions.followed[-1] == Map({"": AdmittedPositions("t", Map({0: 7}))})


@pytest.mark.parametrize(
    ("level", "refusal", "reason"),
    [
        (FEATURE_LEVEL, None, None),
        (FEATURE_LEVEL, "a standby does not know it", "a standby does not know it"),
        (FEATURE_LEVEL + 1, None, "install the release that knows level"),
        (2**31 - 1, None, "install the release that knows level"),
    ],
)
def test_request_of_level_is_answered_at_once(level: int, refusal: str | None, reason: str | None) -> None:
    events: Queue[OutgoingEvent] = Queue()
    shell = DispatcherShell(
        lambda _, owed: events.put(owed),
        Submissions(),  # type: ignore[arg-type]
        check_level=lambda _: refusal,
    )
    try:
        shell.perform("dispatcher", [RaiseFeatureLevel(level, 7, "client/c")], DispatcherState())
        event = events.get(timeout=90)
    finally:
        shell.close()
    assert events.empty()
    assert event.cause == 7
    if reason is None:
        assert (event.recipient, event.body) == ("*", FeatureLevelRaised(level=level, release=__version__))
    else:
        assert event.recipient == "client/c"
        assert isinstance(event.body, FeatureLevelRejected)
        assert reason in event.body.reason
