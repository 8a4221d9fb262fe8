"""The functions and types of a Kafka sink, for the stream that it is given to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..functions.kafka_record import key_and_value_types, without_none
from ..graph.errors import ProgramError
from ..types import PICKLED, RecordType, Scalar
from .connectors import KafkaSink
from .connectors.format_compatibility import check_key
from .connectors.kafka import choose_key_format
from .keys import column_of, field_selector
from .signatures import PARTITIONER, SELECTOR, Signature, check_function
from .source_location import caller_location
from .type_hints import return_type


def kafka_sink_fields(sink: KafkaSink, records: RecordType, step: str) -> dict[str, Any]:
    """Returns the fields of WriteKafka. Raises ProgramError if a function or the type of the keys does not fit."""
    parts = key_and_value_types(records)
    key = _selector(sink.key, records, step)
    keys = _key_type(sink, records, step)
    key_format = sink.key_format
    if keys is None:
        if key_format is not None:
            raise _refusal(step, "the Kafka sink has a key_format, and no key: give it one")
        keys = PICKLED
    elif parts is not None and sink.key is None:
        key_format = choose_key_format("KafkaSink", key_format, keys)
    elif key_format is None:
        of = without_none(keys)
        if of not in (PICKLED, Scalar("str"), Scalar("bytes")):
            raise _refusal(
                step,
                f"the keys of the Kafka sink are of type {of}: give it a key_format, such as Formats.json()",
            )
    if key_format is not None:
        check_key(key_format, keys, step)
    return {
        "sink": sink,
        "topic": _checked(sink.topic, SELECTOR, step) if callable(sink.topic) else None,
        "key": key,
        "key_format": key_format,
        "key_type": keys,
        "headers": _selector(sink.headers, records, step),
        "partitioner": None if sink.partitioner is None else _checked(sink.partitioner, PARTITIONER, step),
        "timestamp_ms": _selector(sink.timestamp_ms, records, step),
        "takes_kafka_records": parts is not None,
    }


def _key_type(sink: KafkaSink, records: RecordType, step: str) -> RecordType | None:
    """Returns the type of the keys; None if messages have no key."""
    parts = key_and_value_types(records)
    match sink.key:
        case None:
            return None if parts is None else parts[0]
        case str() as field:
            return PICKLED if records == PICKLED else column_of(records, field, step).of
        case function:
            return return_type(function)


def _selector(given: Any, records: RecordType, step: str) -> Callable[[Any], Any] | None:
    """Returns a function of the record for a function or the name of a field."""
    if given is None:
        return None
    if isinstance(given, str):
        return field_selector(records, given, step)
    return _checked(given, SELECTOR, step)


def _checked(function: Any, signature: Signature, step: str) -> Callable[..., Any]:
    check_function(function, signature, operator=step, location=caller_location())
    found: Callable[..., Any] = function
    return found


def _refusal(step: str, reason: str) -> ProgramError:
    return ProgramError(reason, operator=step, location=caller_location())
