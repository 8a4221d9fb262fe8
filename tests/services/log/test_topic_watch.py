"""A topic that is lost under a running process is logged; the loss of the log ends the process."""

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
    """Topics by name, with their ids; `away`: Kafka does not answer."""

    def __init__(self) -> None:
        self.ids: dict[str, str | None] = {LOG: "1", SUBMISSIONS: "2"}
        self.away = False

    def describe(self, _admin: Any, names: list[str], *_: Any) -> dict[str, TopicDescription | None]:
        if self.away:
            raise LogUnavailable("away")
        return {name: TopicDescription(self.ids[name], 1) if name in self.ids else None for name in names}


class Watched:
    """A process that checks its topics when the test tells it to."""

    def __init__(self, kafka: Kafka) -> None:
        self.lost: list[Exception] = []
        self.kafka = kafka
        self.watch = TopicWatch(None, LOG, [SUBMISSIONS], self.lost.append)  # type: ignore[arg-type]

    def looks(self, times: int = 2) -> list[str]:
        """Checks, and returns the topics that are logged as lost."""
        with capture_logs() as lines:
            for _ in range(times):
                self.watch.check()
        return [line["topic"] for line in lines if line["log_level"] == "error"]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    kafka = Kafka()
    monkeypatch.setattr(topic_watch, "describe_topics", kafka.describe)
    return Watched(kafka)


@pytest.mark.parametrize("becomes", [None, "7"])
def test_lost_log_ends_process_once(watched: Watched, becomes: str | None) -> None:
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


def test_other_lost_topic_is_logged_once_per_loss(watched: Watched) -> None:
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
def test_short_outage_or_wrong_answer_of_kafka_is_no_loss(steps: list[str]) -> None:
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


def test_topic_that_never_existed_is_no_loss(watched: Watched) -> None:
    watched.kafka.ids.clear()
    assert watched.looks(10) == []
    assert watched.lost == []
