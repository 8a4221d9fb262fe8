"""Records as bytes that are read faster than events are: many at once, each kind of body in one go, by msgspec.

Events that hold a JobGraph stay encoded: whoever reads the same graph twice from its Avro bytes gets the same object,
and what follows from a graph is worked out once for that (pipelines/graph/once.py).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ...schemas import avro
from ...schemas.body import Body
from ...schemas.catalog import EVENTS
from ...schemas.event import Event, Record
from ...schemas.types import Header, JobGraph
from ..log import Codec, Undecodable, Unreadable
from ..log.codec import SINGLE_OBJECT

T = TypeVar("T")


class Encoded(Body, frozen=True, gc=False):
    """An event that was not decoded."""

    AVRO_NAME = "encoded"
    value: bytes


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """Records in the order of the log, and what a tail knows behind them; both ends run the same code."""

    position: int
    bytes_read: int
    """Since the frame before."""
    offsets: list[int]
    kinds: list[int]
    """Of each record's body, by its place among all kinds; _ENCODED: the event is among `encoded`."""
    headers: list[Header]
    """Of those that were decoded."""
    bodies: dict[int, msgspec.Raw]
    """Kind -> the bodies of that kind."""
    encoded: list[bytes]
    unreadable: list[Unreadable]


_ENCODED = -1
_KINDS: Sequence[type[Body]] = [EVENTS[name] for name in sorted(EVENTS)]
_PLACES = {kind: place for place, kind in enumerate(_KINDS)}
_NO_HEADER = Header(event_id="", time=0, sender="", sender_epoch=0, recipient="")
_ENCODER = msgspec.msgpack.Encoder()
_FRAMES = msgspec.msgpack.Decoder(Frame)


class CodecForFrames(Codec):
    """Leaves events that hold a graph as they are."""

    def decode(self, value: bytes | None) -> Event:
        if value is not None and value[: len(SINGLE_OBJECT) + 8] in _heads_with_graphs():
            return Event(_NO_HEADER, Encoded(value))
        return super().decode(value)


def pack(
    records: Sequence[Record], position: int, bytes_read: int, unreadable: Sequence[Unreadable] = ()
) -> bytes:
    """What `unpack` reads. Bodies may be Encoded."""
    kinds: list[int] = []
    headers: list[Header] = []
    encoded: list[bytes] = []
    bodies: dict[int, list[Body]] = {}
    for record in records:
        body = record.body
        if isinstance(body, Encoded):
            kinds.append(_ENCODED)
            encoded.append(body.value)
            continue
        place = _PLACES[type(body)]
        kinds.append(place)
        headers.append(record.header)
        bodies.setdefault(place, []).append(body)
    return _ENCODER.encode(
        Frame(
            position=position,
            bytes_read=bytes_read,
            offsets=[record.offset for record in records],
            kinds=kinds,
            headers=headers,
            bodies={place: msgspec.Raw(_ENCODER.encode(each)) for place, each in bodies.items()},
            encoded=encoded,
            unreadable=list(unreadable),
        )
    )


def unpack(data: bytes | bytearray, codec: Codec, topic: str) -> tuple[Frame, list[Record], list[Unreadable]]:
    """The frame, its records, and what in it is no event. Raises msgspec.MsgspecError; LogUnavailable as `codec`."""
    frame = _FRAMES.decode(data)
    bodies = {place: _next_of(place, each) for place, each in frame.bodies.items()}
    next_header, next_encoded = iter(frame.headers).__next__, iter(frame.encoded).__next__
    records: list[Record] = []
    unreadable = frame.unreadable
    for offset, kind in zip(frame.offsets, frame.kinds, strict=True):
        if kind != _ENCODED:
            records.append(Record(offset, next_header(), bodies[kind]()))
            continue
        value = next_encoded()
        try:
            event = codec.decode(value)
            records.append(Record(offset, event.header, event.body))
        except Undecodable as reason:
            unreadable.append(Unreadable(topic, 0, offset, str(reason), None, value))
    return frame, records, unreadable


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items, so many at a time; an empty one where there are none."""
    for begin in range(0, max(1, len(items)), size):
        yield items[begin : begin + size]


def _next_of(place: int, data: msgspec.Raw) -> Any:
    return iter(_bodies(place).decode(data)).__next__


@functools.cache
def _bodies(place: int) -> msgspec.msgpack.Decoder[Any]:
    kind: Any = _KINDS[place]
    return msgspec.msgpack.Decoder(list[kind])


@functools.cache
def _heads_with_graphs() -> frozenset[bytes]:
    graph = f'"{JobGraph.AVRO_NAME}"'
    return frozenset(
        SINGLE_OBJECT + avro.fingerprint(name) for name in EVENTS if graph in json.dumps(avro.schemas()[name])
    )
