"""Topics that are lost under a running process are named, the log's ends the process."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tailrace.services.log import LogUnavailable, topic_watch
from tailrace.services.log.topic_watch import TopicReplaced, TopicWatch
from tailrace.services.log.topics import TopicDescription

LOG, SUBMISSIONS = "c.log", "c.submissions"


class Kafka:
    """Topics by name, with their ids; `away`: it does not answer."""

    def __init__(self) -> None:
        self.ids: dict[str, str | None] = {LOG: "1", SUBMISSIONS: "2"}
        self.away = False

    def describe(self, _admin: Any, names: list[str], *_: Any) -> dict[str, TopicDescription | None]:
        if self.away:
            raise LogUnavailable("away")
        return {each: TopicDescription(self.ids[each], 1) if each in self.ids else None for each in names}


class Watched:
    """A process that looks when it is told to."""

    def __init__(self, kafka: Kafka) -> None:
        self.lost: list[Exception] = []
        self.kafka = kafka
        self.watch = TopicWatch(None, LOG, [SUBMISSIONS], self.lost.append)  # type: ignore[arg-type]

    def looks(self, times: int = 2) -> list[str]:
        """The topics that it tells people of."""
        with capture_logs() as lines:
            for _ in range(times):
                self.watch.check()
        return [each["topic"] for each in lines if each["log_level"] == "error"]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    kafka = Kafka()
    monkeypatch.setattr(topic_watch, "describe_topics", kafka.describe)
    return Watched(kafka)


@pytest.mark.parametrize("becomes", [None, "7"])
def test_a_log_that_is_lost_ends_the_process_once(watched: Watched, becomes: str | None) -> None:
    watched.looks()
    if becomes is None:
        del watched.kafka.ids[LOG]
    else:
        watched.kafka.ids[LOG] = becomes
    assert watched.looks(1) == []
    assert watched.lost == [], "one look may be mistaken"
    watched.looks(10)
    (error,) = watched.lost
    assert isinstance(error, TopicReplaced)
    assert str(error).startswith("c.log was deleted")


def test_another_topic_that_is_lost_is_named_once_for_each_loss(watched: Watched) -> None:
    watched.looks()
    del watched.kafka.ids[SUBMISSIONS]
    assert watched.looks(10) == [SUBMISSIONS]
    watched.kafka.ids[SUBMISSIONS] = "9"
    assert watched.looks(10) == [], "that is known"
    watched.kafka.ids[SUBMISSIONS] = "10"
    assert watched.looks(10) == [SUBMISSIONS]
    del watched.kafka.ids[SUBMISSIONS]
    assert watched.looks(10) == [SUBMISSIONS]
    assert watched.lost == []


@given(st.lists(st.sampled_from(["look", "away", "back", "flicker"]), max_size=30))
def test_a_kafka_that_is_away_or_mistaken_for_a_moment_loses_nothing(steps: list[str]) -> None:
    kafka = Kafka()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_watch, "describe_topics", kafka.describe)
        watched = Watched(kafka)
        for step in steps:
            match step:
                case "look":
                    assert watched.looks() == []
                case "flicker":
                    known = kafka.ids.copy()
                    kafka.ids.clear()
                    assert watched.looks(1) == []
                    kafka.ids = known
                    assert watched.looks(1) == []
                case _:
                    kafka.away = step == "away"
        assert watched.lost == []


def test_what_was_never_there_is_no_loss(watched: Watched) -> None:
    watched.kafka.ids.clear()
    assert watched.looks(10) == []
    assert watched.lost == []
