"""What of a client's request is looked at before it is admitted into the log."""

from __future__ import annotations

import threading

import pytest

from tailrace.schemas import dispatcher, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.types import Header
from tailrace.services.dispatcher import submissions
from tailrace.services.dispatcher.submissions import SubmissionsReader, check_allowed
from tailrace.services.log import Codec, LogUnavailable, Undecodable
from tailrace.services.log.memory import MemoryEventLog

CANCEL = dispatcher.CancelJob(job_id="j")


def said(body: Body = CANCEL, *, sender: str = "client/me", time: int = 1) -> Event:
    return Event(Header(event_id="e", time=time, sender=sender, sender_epoch=0, recipient="dispatcher"), body)


@pytest.mark.parametrize(
    "event",
    [
        said(),
        said(time=0),
        said(time=2**53),
        said(sender="client/A-b_c.9"),
        said(sender=f"client/{'n' * 64}"),
    ],
)
def test_a_request_of_a_client_is_taken(event: Event) -> None:
    check_allowed(event)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (said(time=-1), "the time -1 is not"),
        (said(time=2**53 + 1), "give microseconds"),
        (said(sender="client"), "is no client"),
        (said(sender="client/"), "is no client"),
        (said(sender=f"client/{'n' * 65}"), "is no client"),
        (said(sender="client/a\n"), "is no client"),
        (said(sender="client/\x1b[2J"), "is no client"),
        (said(sender="client/a/b"), "is no client"),
        (said(sender="dispatcher"), "is no client"),
        (said(resource_manager.ShutDownCluster(reason="no")), "not for clients to say"),
    ],
)
def test_what_is_no_request_or_can_not_be_shown_is_refused(event: Event, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason) as refused:
        check_allowed(event)
    assert str(refused.value).isprintable()


class Flaky(Codec):
    """A codec whose registry is away at first, or for ever."""

    def __init__(self, failures: float) -> None:
        super().__init__("c.submissions")
        self.failures = failures

    def decode(self, value: bytes | None) -> Event:
        if self.failures > 0:
            self.failures -= 1
            raise LogUnavailable("the schema registry can't be reached")
        return super().decode(value)


def reader_with(codec: Codec) -> SubmissionsReader:
    def unexpected(*what: object) -> None:
        pytest.fail(f"nothing was to be said: {what}")

    return SubmissionsReader(
        bootstrap_servers="",
        cluster="c",
        codec=codec,
        log=MemoryEventLog(),
        say=unexpected,
        write_dead_letter=unexpected,
        clock=lambda: 1,
        on_failure=unexpected,
    )


def test_a_submission_waits_for_a_registry_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "_REGISTRY_PAUSE_S", 0.001)
    reader = reader_with(Flaky(3))
    assert reader._decode(Codec("c.submissions").encode(said())) == said()


def test_a_reader_that_is_stopped_waits_for_no_registry() -> None:
    reader = reader_with(Flaky(float("inf")))
    stopping = threading.Timer(0.05, reader.close)
    stopping.start()
    assert reader._decode(b"anything") is None
    stopping.join()
