"""A reader gets exactly the records of the log that concern it, in order, whatever happens to relays and
connections."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.schemas.event import EVERYONE
from tailrace.services.log.raw_record import RawRecord
from tailrace.services.relay.protocol import FrameDecoder, Message, Progress, encode
from tailrace.services.relay.recent_records import RecentRecords
from tailrace.services.relay.server import RelayServer

from .relayed import ADDRESSES, CODEC, Log, event, expected, filter_of, read_until, relayed, serve

PLACES = (*ADDRESSES, "dispatcher", "job_master/j", "task_executor/c")
appends = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(PLACES), st.sampled_from((*PLACES, EVERYONE))),
        st.sampled_from(["foreign", "garbage"]),
    ),
    min_size=1,
    max_size=6,
)
steps = st.one_of(
    st.tuples(st.just("append"), appends),
    st.tuples(st.just("own"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["read", "lose", "master", "standby", "all masters", "restart"]), st.none()),
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=appends,
    script=st.lists(steps, max_size=12),
    memory_bytes=st.sampled_from([1, 1_500, 64 << 20]),
    count=st.integers(1, 2),
)
def test_reader_gets_filter_of_log_whatever_happens(
    history: list[object], script: list[tuple[str, object]], memory_bytes: int, count: int
) -> None:
    log, addresses = Log(), ADDRESSES[:count]

    def append(items: object) -> None:
        for item in items:  # type: ignore[attr-defined]
            match item:
                case "foreign":
                    log.append_values([CODEC.encode(event("client/x", ADDRESSES[0]))])
                case "garbage":
                    log.append_values([b"no event"])
                case (sender, recipient):
                    log.append([event(sender, recipient)])

    append(history)
    servers: list[RelayServer] = [serve(log, memory_bytes=memory_bytes)]
    unreadable: list[int] = []
    found: list[str | None] = [servers[0].address]
    reading = relayed(log, lambda: found[0])
    tails = [
        reading.tail(
            0, concerns=filter_of(*addresses), on_unreadable=lambda each: unreadable.append(each.offset)
        )
    ]
    records = []
    try:
        for step, argument in script:
            match step:
                case "append":
                    append(argument)
                case "own":
                    reading.append([event(addresses[0], "resource_manager") for _ in range(argument)])  # type: ignore[call-overload]
                case "read":
                    records += read_until(tails[-1], log.end())
                case "lose":
                    servers[-1]._drop_all("test")
                case "master":
                    servers.append(serve(log, memory_bytes=memory_bytes))
                    found[0] = servers[-1].address
                case "standby":
                    servers[-1].close()
                case "all masters":
                    servers[-1].close()
                    found[0] = None
                case _:
                    tails[-1].close()
                    position = tails[-1].position
                    tails.append(
                        reading.tail(
                            position,
                            concerns=filter_of(*addresses),
                            on_unreadable=lambda each: unreadable.append(each.offset),
                        )
                    )
        records += read_until(tails[-1], log.end())
    finally:
        tails[-1].close()
        for server in servers:
            server.close()
    assert records == expected(log, addresses)
    garbage = [offset for offset, (_, value) in enumerate(log.entries_from(0, 0)) if value == b"no event"]
    assert unreadable == garbage


records = st.builds(
    lambda addresses, value: (addresses, value),
    st.one_of(st.none(), st.tuples(st.sampled_from(PLACES), st.sampled_from((*PLACES, EVERYONE)))),
    st.binary(max_size=200),
)


@given(
    entries=st.lists(records, max_size=30),
    gaps=st.lists(st.integers(1, 3), min_size=30, max_size=30),
    start=st.integers(0, 60),
    most_bytes=st.integers(1, 8_000),
)
def test_recent_records_are_all_from_first_on(
    entries: list[tuple[tuple[str, str] | None, bytes]], gaps: list[int], start: int, most_bytes: int
) -> None:
    recent, offset, added = RecentRecords(0, most_bytes), 0, []
    for (addresses, value), gap in zip(entries, gaps, strict=False):
        record = RawRecord(offset, addresses, None, value)
        recent.add(record)
        added.append(record)
        offset += gap
    start = max(start, recent.first)
    concerns = filter_of(*ADDRESSES)
    wanted = [
        record
        for record in added
        if record.offset >= start and (record.addresses is None or concerns(*record.addresses))
    ]
    assert recent.find(ADDRESSES, start) == wanted


@given(
    messages=st.lists(
        st.one_of(
            st.builds(Progress, st.integers(0, 1 << 62)),
            st.builds(
                RawRecord,
                st.integers(0, 1 << 62),
                st.one_of(st.none(), st.tuples(st.text(), st.text())),
                st.one_of(st.none(), st.binary()),
                st.one_of(st.none(), st.binary()),
            ),
        )
    ),
    piece=st.integers(1, 50),
)
def test_frames_survive_any_division(messages: list[Message], piece: int) -> None:
    sent = b"".join(map(encode, messages))
    decoder, received = FrameDecoder(1 << 20), []
    for at in range(0, len(sent), piece):
        decoder.feed(sent[at : at + piece])
        received += list(decoder.messages())
    assert received == messages
