"""Decodes the bytes of a log by the Avro specification and the .avsc files alone.

Single-object encoding is the marker C3 01, the CRC-64-AVRO fingerprint of the schema (8 bytes, little-endian) and the
Avro body. The Confluent wire format is not supported: dump a log that was written with a registry through the registry.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

from .events import Event, event
from .invariants import check

SCHEMAS = Path(__file__).parents[2] / "schemas"
_MARKER = b"\xc3\x01"
_HEAD = 10


class Unreadable(ValueError):
    """The bytes are no event of this release."""


def decode(offset: int, value: bytes) -> Event:
    """Decodes a record of the log. Raises Unreadable."""
    known = _by_fingerprint().get(value[len(_MARKER) : _HEAD])
    if not value.startswith(_MARKER) or known is None:
        raise Unreadable(f"offset {offset}: {value[:_HEAD].hex(' ')} is the head of no event")
    name, schema = known
    body = fastavro.schemaless_reader(io.BytesIO(value[_HEAD:]), schema)
    assert isinstance(body, dict)
    return event(offset, name, body.pop("header"), body)


def read_topic(bootstrap_servers: str, topic: str, timeout_s: float = 30.0) -> Iterator[Event]:
    """Reads every event of a topic with one partition, from its first offset to its current end.

    Raises Unreadable; TimeoutError if no record arrives for `timeout_s` seconds.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "checker", "enable.auto.commit": False}
    )
    try:
        partition = TopicPartition(topic, 0)
        first, end = consumer.get_watermark_offsets(partition, timeout=timeout_s)
        consumer.assign([TopicPartition(topic, 0, first)])
        position, deadline = first, time.monotonic() + timeout_s
        while position < end:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{topic} was read up to offset {position} of {end} within {timeout_s:g} s"
                )
            for message in consumer.consume(1_000, timeout=0.2):
                if message.error():
                    raise KafkaException(message.error())
                position, value = message.offset() + 1, message.value()
                deadline = time.monotonic() + timeout_s
                if position > end or value is None:
                    continue
                yield decode(position - 1, value)
            position = max(position, consumer.position([partition])[0].offset)
    finally:
        consumer.close()


def violations_at_rest(
    bootstrap_servers: str, topic: str, timeout_s: float = 30.0
) -> tuple[list[Event], list[str]]:
    """Returns all events of a topic and the violations in them, when the cluster has come to rest.

    A job's end is told before its slots are free. So the topic is read again while something is open at its end, for
    `timeout_s` seconds at most.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        events = list(read_topic(bootstrap_servers, topic))
        violations = check(events)
        if not violations or check(events, settled=False) or time.monotonic() > deadline:
            return events, [str(violation) for violation in violations]
        time.sleep(0.5)


@functools.cache
def _by_fingerprint() -> dict[bytes, tuple[str, Any]]:
    """Returns (full name, schema) of every event by fingerprint."""
    loaded = {}
    for path in sorted(SCHEMAS.glob("*/*.avsc")):
        schema = json.loads(path.read_text("utf-8"))
        loaded[f"{schema['namespace']}.{schema['name']}"] = schema
    known = {}
    for name in loaded:
        schema = _standalone_schema(name, loaded, set())
        canonical = to_parsing_canonical_form(schema)
        parsed = parse_schema(_without_logical_types(copy.deepcopy(schema)))
        known[bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))] = (name, parsed)
    return known


def _standalone_schema(node: Any, loaded: dict[str, Any], seen: set[str]) -> Any:
    """Returns the schema with every named type defined where it is first used."""
    if isinstance(node, str):
        if node not in loaded or node in seen:
            return node
        seen.add(node)
        return _standalone_schema(copy.deepcopy(loaded[node]), loaded, seen)
    if isinstance(node, list):
        return [_standalone_schema(item, loaded, seen) for item in node]
    if isinstance(node, dict):
        inside = ("type", "items", "values", "fields")
        return {
            key: _standalone_schema(value, loaded, seen) if key in inside else value
            for key, value in node.items()
        }
    return node


def _without_logical_types(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_logical_types(value) for key, value in node.items() if key != "logicalType"}
    if isinstance(node, list):
        return [_without_logical_types(item) for item in node]
    return node
