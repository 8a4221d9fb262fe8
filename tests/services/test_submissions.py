"""What of a client's request is looked at before it is admitted into the log."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.schemas import dispatcher, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.ids import is_id
from tailrace.schemas.types import Header, Origin
from tailrace.services.dispatcher import admission
from tailrace.services.dispatcher.admission import SubmissionsReader, check_allowed
from tailrace.services.dispatcher.submission_sender import SubmissionSender, sender_of
from tailrace.services.log import Codec, LogUnavailable, Undecodable
from tailrace.services.log.memory import MemoryEventLog

from .simulated_cluster.cluster import Cluster

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
        (said(dispatcher.SubmitJob(job_id="-rf")), "begins with '-', so that commands take it for an option"),
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
    monkeypatch.setattr(admission, "_REGISTRY_PAUSE_S", 0.001)
    reader = reader_with(Flaky(3))
    assert reader._decode(Codec("c.submissions").encode(said())) == said()


def test_a_reader_that_is_stopped_waits_for_no_registry() -> None:
    reader = reader_with(Flaky(float("inf")))
    stopping = threading.Timer(0.05, reader.close)
    stopping.start()
    assert reader._decode(b"anything") is None
    stopping.join()


SUBMIT = said(dispatcher.SubmitJob(job_id="job-1"), sender="client/go-1")


@pytest.mark.parametrize("head", [b"\xc3\x01" + b"12345678", b"\x00\x00\x00\x00\x63"])
def test_of_a_submission_with_an_unknown_schema_the_client_and_the_job_are_known(head: bytes) -> None:
    assert sender_of(head + Codec("t").encode(SUBMIT)[10:]) == SubmissionSender("client/go-1", "job-1")


@given(st.binary(max_size=60), st.integers(0, 200))
def test_garbage_has_no_sender_and_raises_nothing(garbage: bytes, cut: int) -> None:
    whole = Codec("t").encode(SUBMIT)
    for value in (garbage, b"\xc3\x01" + garbage, whole[:10] + garbage, whole[:cut]):
        found = sender_of(value)
        assert found is None or is_id(found.job_id)


def test_who_can_be_answered_is_told_that_a_submission_is_refused() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.settle()
    source = Origin(topic="t.submissions", partition=0, offset=0)
    refused = dispatcher.SubmissionRefused(source=source, reason="unknown schema")
    cluster.say("dispatcher", "dispatcher", refused)
    cluster.say("dispatcher", "dispatcher", replace(refused, client="client/go-1", job_id="job-1"))
    cluster.settle()
    (answer,) = cluster.said("JobRejected")
    assert answer.header.recipient == "client/go-1"
    assert (answer.body.job_id, answer.body.reason) == ("job-1", "unknown schema")  # type: ignore[attr-defined]
