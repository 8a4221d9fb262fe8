"""The checks of a client's request before it is admitted into the log."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.infra.kafka_connection import KafkaConnection
from tailrace.schemas import dispatcher, resource_manager
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.ids import is_id
from tailrace.schemas.types import Header, Origin, RestOrigin
from tailrace.services.dispatcher import admission
from tailrace.services.dispatcher.admission import SubmissionsReader, check_allowed
from tailrace.services.dispatcher.submission_sender import SubmissionSender, sender_of
from tailrace.services.log import Codec, LogUnavailable, Undecodable
from tailrace.services.log.memory import MemoryEventLog

from .simulated_cluster.cluster import Cluster

CANCEL = dispatcher.CancelJob(job_id="j")


def request(
    body: Body = CANCEL, *, sender: str = "client/me", time: int = 1, principal: str | None = None
) -> Event:
    """`principal`: who asked a REST server for it."""
    origin = None if principal is None else RestOrigin(principal=principal, server="127.0.0.1:8081")
    return Event(
        Header(
            event_id="e", time=time, sender=sender, sender_epoch=0, recipient="dispatcher", rest_origin=origin
        ),
        body,
    )


@pytest.mark.parametrize(
    "event",
    [
        request(),
        request(time=0),
        request(time=2**53),
        request(sender="client/A-b_c.9"),
        request(sender=f"client/{'n' * 64}"),
        request(principal="CN=gateway,O=Example"),
    ],
)
def test_valid_request_is_admitted(event: Event) -> None:
    check_allowed(event)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (request(time=-1), "the time -1 is not"),
        (
            request(dispatcher.SubmitJob(job_id="-rf")),
            "begins with '-', so commands would read it as an option",
        ),
        (request(time=2**53 + 1), "give microseconds"),
        (request(sender="client"), "is not a client"),
        (request(sender="client/"), "is not a client"),
        (request(sender=f"client/{'n' * 65}"), "is not a client"),
        (request(sender="client/a\n"), "is not a client"),
        (request(sender="client/\x1b[2J"), "is not a client"),
        (request(sender="client/a/b"), "is not a client"),
        (request(sender="dispatcher"), "is not a client"),
        (request(principal=""), "is not a text of 1 to 300 printable characters"),
        (request(principal="a\x1b[2J"), "is not a text of 1 to 300 printable characters"),
        (request(principal="a" * 301), "is not a text of 1 to 300 printable characters"),
        (request(resource_manager.ShutDownCluster(reason="no")), "may not be sent by clients"),
    ],
)
def test_invalid_or_unprintable_request_is_rejected(event: Event, reason: str) -> None:
    with pytest.raises(Undecodable, match=reason) as refused:
        check_allowed(event)
    assert str(refused.value).isprintable()


class Flaky(Codec):
    """A codec whose registry is unavailable at first, or always."""

    def __init__(self, failures: float) -> None:
        super().__init__("c.submissions")
        self.failures = failures

    def decode(self, value: bytes | None) -> Event:
        if self.failures > 0:
            self.failures -= 1
            raise LogUnavailable("the schema registry cannot be reached")
        return super().decode(value)


def reader_with(codec: Codec) -> SubmissionsReader:
    def unexpected(*what: object) -> None:
        pytest.fail(f"nothing was to be said: {what}")

    return SubmissionsReader(
        kafka=KafkaConnection(""),
        cluster="c",
        codec=codec,
        log=MemoryEventLog(),
        say=unexpected,
        write_dead_letter=unexpected,
        clock=lambda: 1,
        on_failure=unexpected,
    )


def test_submission_waits_for_unavailable_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_REGISTRY_PAUSE_S", 0.001)
    reader = reader_with(Flaky(3))
    assert reader._decode(Codec("c.submissions").encode(request()), "c.submissions") == request()


def test_stopped_reader_does_not_wait_for_registry() -> None:
    reader = reader_with(Flaky(float("inf")))
    stopping = threading.Timer(0.05, reader.close)
    stopping.start()
    assert reader._decode(b"anything", "c.submissions") is None
    stopping.join()


SUBMIT = request(dispatcher.SubmitJob(job_id="job-1"), sender="client/go-1")


@pytest.mark.parametrize("head", [b"\xc3\x01" + b"12345678", b"\x00\x00\x00\x00\x63"])
def test_client_and_job_of_submission_with_unknown_schema_are_known(head: bytes) -> None:
    assert sender_of(head + Codec("t").encode(SUBMIT)[10:]) == SubmissionSender("client/go-1", "job-1")


@given(st.binary(max_size=60), st.integers(0, 200))
def test_garbage_has_no_sender_and_raises_nothing(garbage: bytes, cut: int) -> None:
    whole = Codec("t").encode(SUBMIT)
    for value in (garbage, b"\xc3\x01" + garbage, whole[:10] + garbage, whole[:cut]):
        sender = sender_of(value)
        assert sender is None or is_id(sender.job_id)


def test_rejected_submission_is_answered_if_sender_is_known() -> None:
    cluster = Cluster()
    cluster.start_master()
    cluster.settle()
    source = Origin(topic="t.submissions", partition=0, offset=0)
    refused = dispatcher.SubmissionRefused(source=source, reason="unknown schema")
    cluster.send("dispatcher", "dispatcher", refused)
    cluster.send("dispatcher", "dispatcher", replace(refused, client="client/go-1", job_id="job-1"))
    cluster.settle()
    (answer,) = cluster.events_of("JobRejected")
    assert answer.header.recipient == "client/go-1"
    assert (answer.body.job_id, answer.body.reason) == ("job-1", "unknown schema")  # type: ignore[attr-defined]
