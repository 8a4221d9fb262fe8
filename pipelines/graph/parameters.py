"""The valid parameters of operators and edges: one row per kind, checked before a graph is accepted.

A rule checks one value and names each error in one line, with the path to it. A parameter that no rule allows is an
error too: it may be misspelt, or from a newer release, and must not be ignored. Parameters that may be null may be left
out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ...infra import json_depth
from ...infra.kafka_connection import KafkaConnection
from ...infra.redaction import has_user_information, redacted
from ...schemas.types import Partitioner
from ..sql.errors import SqlError
from ..sql.syntax import parse_expression
from ..types import RecordType, RecordTypeError
from .bucket_elements import find_bucket_errors
from .errors import one_line, shown
from .operators import OperatorKind
from .protobuf_classes import is_class_name
from .registry_properties import find_registry_errors
from .spark_options import find_option_errors

Rule = Callable[[str, Any], Iterator[str]]
"""(path, value; None if it is missing) -> the errors."""


def parameter_errors(kind: OperatorKind, parameters: str, *, sink: bool) -> Iterator[str]:
    """Yields what is wrong with OperatorConfig.parameters."""
    common = _SINK if sink else _SENDER
    yield from _object_errors(parameters, {**common, **_OPERATORS[kind]})


def edge_parameter_errors(partitioner: Partitioner, parameters: str) -> Iterator[str]:
    """Yields what is wrong with JobEdge.parameters."""
    keyed = partitioner in (Partitioner.HASH, Partitioner.CUSTOM)
    yield from _object_errors(parameters, _KEYED_EDGE if keyed else {})


def _object_errors(text: str, rules: Mapping[str, Rule]) -> Iterator[str]:
    if json_depth.is_too_deep(text):
        yield f"its parameters are nested more than {json_depth.MOST} deep"
        return
    try:
        parameters = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeError) as error:
        yield f"its parameters are no JSON object: {one_line(str(error))}"
        return
    yield from _field_errors("", parameters, rules)


def _field_errors(path: str, value: Mapping[str, Any], rules: Mapping[str, Rule]) -> Iterator[str]:
    for name, rule in rules.items():
        yield from rule(f"{path}{name}", value.get(name))
    for name in (name for name in value if name not in rules):
        known = f"only {', '.join(rules)}" if rules else "none"
        yield f"there is no parameter {shown(path + name)} here, {known}"


def _json(value: object) -> str:
    text = redacted(msgspec.json.encode(value).decode())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _value(is_right: Callable[[Any], bool], wanted: str) -> Rule:
    def faults(path: str, value: Any) -> Iterator[str]:
        if not is_right(value):
            yield f"its parameter {path} is {_json(value)}, not {wanted}"

    return faults


def _optional(rule: Rule) -> Rule:
    return lambda path, value: iter(()) if value is None else rule(path, value)


def _whole(wanted: str, least: int, most: int = 2**53) -> Rule:
    return _value(lambda value: type(value) is int and least <= value <= most, wanted)


def _one_of(*names: str) -> Rule:
    return _value(lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}")


def _texts(wanted: str, *, least: int = 1) -> Rule:
    return _value(
        lambda value: isinstance(value, list) and len(value) >= least and all(map(_is_filled, value)), wanted
    )


def _variants(name: str, variants: Mapping[str, Mapping[str, Rule]], **common: Rule) -> Rule:
    """Returns the rule of an object whose field `name` selects its other fields; fields of other variants may be
    null."""
    everywhere = {field: _null for fields in variants.values() for field in fields}
    kinds = _one_of(*variants)

    def faults(path: str, value: Any) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"its parameter {path} is {_json(value)}, not an object"
            return
        own = value.get(name)
        fields = variants.get(own) if isinstance(own, str) else None
        if fields is None:
            yield from kinds(f"{path}.{name}", own)
        else:
            yield from _field_errors(f"{path}.", value, {**everywhere, **common, name: kinds, **fields})

    return faults


def _types_by_tag(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"its parameter {path} is {_json(value)}, not an object of record types by tag"
        return
    for tag, form in value.items():
        yield from _record_type(f"{path}.{shown(tag)}", form)


def _broadcast_states(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not value or not all(value):
        yield f"its parameter {path} is {_json(value)}, not an object of one or more states by name"
        return
    for name, types in value.items():
        if not isinstance(types, dict):
            yield f"its parameter {path}.{shown(name)} is {_json(types)}, not an object"
        else:
            yield from _field_errors(
                f"{path}.{shown(name)}.", types, {"key_type": _record_type, "value_type": _record_type}
            )


def _record_type(path: str, value: Any) -> Iterator[str]:
    try:
        RecordType.from_json(value)
    except RecordTypeError as error:
        yield f"its {path} is no record type: {one_line(str(error))}"


def _connection(path: str, value: Any) -> Iterator[str]:
    try:
        connection = msgspec.convert(value, KafkaConnection)
    except msgspec.ValidationError as error:
        yield f"its parameter {path} is no address of a Kafka cluster with its properties: {one_line(str(error))}"
        return
    if not connection.bootstrap_servers:
        yield f"its parameter {path} has no bootstrap_servers"
    for fault in connection.errors():
        yield f"its parameter {path}: {one_line(fault)}"


def _registry_properties(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        yield f"its parameter {path} is no object of texts"
        return
    for fault in find_registry_errors(value):
        yield f"its parameter {path}: {one_line(fault)}"


def _file_options(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        yield f"its parameter {path} is no object of texts"
        return
    for fault in find_option_errors(value):
        yield f"its parameter {path}: {one_line(fault)}"


def _bucket(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, list) or not all(map(_is_filled, value)):
        yield f"its parameter {path} is no list of fields and patterns"
        return
    for fault in find_bucket_errors(value):
        yield f"its parameter {path}: {one_line(fault)}"


def _partition_starts(path: str, value: Any) -> Iterator[str]:
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        yield f"its parameter {path} is no object of partitions by topic"
        return
    for topic, partitions in value.items():
        for partition, start in partitions.items():
            own = f"{path}.{shown(topic)}.{shown(partition)}"
            if not partition.isdecimal():
                yield f"its parameter {own} is of no partition: its name is not a number"
            yield from _PARTITION_START(own, start)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _is_character(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1 and value not in '"\r\n'


def _is_filled(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_json(value: Any) -> bool:
    if not isinstance(value, str) or json_depth.is_too_deep(value):
        return False
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError):
        return False
    return True


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


_null = _value(lambda value: value is None, "null")
_flag = _optional(_value(lambda value: type(value) is bool, "true or false"))
_name = _value(_is_filled, "one or more characters")
_size = _whole("a number of milliseconds, 1 or more", 1)
_distance = _whole("a number of milliseconds, 0 or more", 0)
_time = _whole("a number of milliseconds", -(2**53))
_offset = _optional(_time)
_field = _optional(_name)
_registry = _value(
    lambda value: _is_filled(value) and not has_user_information(value),
    "a URL without a user and password (schema.registry.basic-auth.credentials-file is for these)",
)

_message = _optional(_value(is_class_name, "the name of a message class, such as module:Class"))
_REGISTRY: Mapping[str, Rule] = {
    "registry": _optional(_registry),
    "subject": _optional(_one_of("topic", "record", "topic-record")),
    "registry_properties": _optional(_registry_properties),
    "register": _flag,
}

_SINK: Mapping[str, Rule] = {"rich": _flag, "modules": _optional(_texts("names of modules"))}
_SENDER: Mapping[str, Rule] = {
    **_SINK,
    "output_type": _record_type,
    "side_outputs": _optional(_types_by_tag),
}
_KEYED: Mapping[str, Rule] = {"key_type": _record_type, "key_field": _field}
_TIMED: Mapping[str, Rule] = {**_KEYED, "timers": _flag, "event_time_held_by": _optional(_name)}
_KEYED_EDGE: Mapping[str, Rule] = {"key_type": _optional(_record_type), "key_field": _field}

_BY_SPARK = ("spark-parquet", "spark-orc", "spark-json", "spark-csv")
_AGGREGATIONS = ("sum", "min", "max", "min_by", "max_by")
_AGGREGATE: Mapping[str, Rule] = {
    "function": _one_of(*_AGGREGATIONS),
    "field": _field,
    **_KEYED,
    "mini_batch": _flag,
}

_FORMAT = _variants(
    "kind",
    {
        "text": {},
        "raw": {},
        "csv": {"delimiter": _optional(_value(_is_character, "one character"))},
        "json": {"schema": _optional(_value(_is_json, "a schema as JSON text"))},
        "json-schema": {
            "schema": _optional(_value(_is_json, "a JSON Schema as JSON text")),
            **_REGISTRY,
            "registry": _registry,
        },
        "debezium-json": {},
        "avro": {
            "schema": _optional(_value(_is_json, "an Avro schema as JSON text")),
            "framing": _one_of("single-object", "registry", "none"),
            **_REGISTRY,
        },
        "protobuf": {"message": _message, **_REGISTRY},
    },
    framing=_optional(_one_of("none")),
)
_STARTS: Mapping[str, Mapping[str, Rule]] = {
    "earliest": {},
    "latest": {},
    "committed": {},
    "timestamp": {"timestamp_ms": _distance},
}
_PARTITION_START = _variants("mode", {**_STARTS, "offset": {"offset": _whole("an offset, 0 or more", 0)}})
_STARTING = _variants("mode", _STARTS, partitions=_optional(_partition_starts))
_ASSIGNER = _variants(
    "kind",
    {
        "tumbling": {"size_ms": _size, "offset_ms": _offset},
        "sliding": {"size_ms": _size, "slide_ms": _size, "offset_ms": _offset},
        "session": {"gap_ms": _size},
        "dynamic_session": {},
        "global": {},
    },
    time=_one_of("processing", "event"),
    offset_ms=_optional(_whole("0 or null", 0, 0)),
)


def _is_expression(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parse_expression(value)
    except SqlError:
        return False
    return True


def _is_select(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, list) and len(item) == 2 for item in value)
        and all(isinstance(name, str) and _is_expression(text) for name, text in value)
    )


_KAFKA_SINK: Mapping[str, Rule] = {
    "topic": _optional(_name),  # null: a function returns it
    "format": _FORMAT,
    "key_format": _optional(_FORMAT),
    "key_type": _optional(_record_type),
    "takes_kafka_records": _flag,
}

_OPERATORS: Mapping[OperatorKind, Mapping[str, Rule]] = MappingProxyType(
    {
        OperatorKind.SOCKET_TEXT_STREAM: {
            "host": _value(_is_filled, "a host name"),
            "port": _whole("a port, 1 to 65535", 1, 65535),
            "delimiter": _name,
            "max_retries": _whole("a number of retries, -1 for no end", -1),
        },
        OperatorKind.COLLECTION: {},
        OperatorKind.FILES: {
            "paths": _texts("a list of paths, one or more"),
            "format": _one_of("text", "csv", "avro", "parquet", "orc", "protobuf", *_BY_SPARK),
            "columns": _optional(_texts("a list of columns, one or more, or null")),
            "options": _optional(_file_options),
            "message": _message,
            "monitor_ms": _optional(_size),
            "max_age_ms": _optional(_size),
        },
        OperatorKind.GENERATOR: {
            "count": _optional(_whole("a number of records, or null", 0)),
            "rate": _optional(_value(_is_rate, "a number of records per second above 0, or null")),
        },
        OperatorKind.KAFKA_SOURCE: {
            "topics": _texts("a list of topics", least=0),
            "topic_pattern": _optional(_value(_is_pattern, "a regular expression, or null")),
            "discovery_ms": _optional(_size),
            "format": _FORMAT,
            "key_format": _optional(_FORMAT),
            "starting": _STARTING,
            "resets_offsets": _flag,
            "group_id": _optional(_name),
            "bounded": _flag,
            "on_bad_record": _one_of("fail", "skip"),
            "on_tombstone": _optional(_one_of("fail", "skip", "read")),
            "on_data_loss": _optional(_one_of("fail", "earliest", "latest")),
            "connection": _optional(_connection),
        },
        OperatorKind.CUSTOM_SOURCE: {"bounded": _flag},
        OperatorKind.MAP: {},
        OperatorKind.FLAT_MAP: {},
        OperatorKind.FILTER: {},
        OperatorKind.WHERE: {"condition": _value(_is_expression, "an expression in SQL")},
        OperatorKind.SELECT: {"columns": _value(_is_select, "pairs of a name and an expression in SQL")},
        OperatorKind.MAP_BATCHES: {},
        OperatorKind.PRE_AGGREGATE: _AGGREGATE,
        OperatorKind.WATERMARKS: {
            "out_of_orderness_ms": _distance,
            "idle_after_ms": _optional(_size),
            "assigns_timestamps": _flag,
        },
        OperatorKind.PROCESS: {},
        OperatorKind.ASYNC_MAP: {
            "capacity": _whole("a number of records, 1 or more", 1),
            "timeout_ms": _optional(_size),
            "ordered": _flag,
        },
        OperatorKind.REDUCE: {**_KEYED, "mini_batch": _flag},
        OperatorKind.AGGREGATE: _AGGREGATE,
        OperatorKind.KEYED_PROCESS: _TIMED,
        OperatorKind.WINDOW: {
            "assigner": _ASSIGNER,
            "allowed_lateness_ms": _optional(_distance),
            "late_tag": _optional(_name),
            "aggregation": _one_of("reduce", "aggregate", "none", *_AGGREGATIONS),
            "field": _field,
            **_KEYED,
            "accumulator_type": _optional(_record_type),
            "trigger": _field,
            "evictor": _field,
            "ingestion_time": _optional(_flag),  # graphs of 0.1.0 have it; nothing reads it
        },
        OperatorKind.CO_MAP: {},
        OperatorKind.CO_FLAT_MAP: {},
        OperatorKind.CO_PROCESS: {},
        OperatorKind.KEYED_CO_PROCESS: _TIMED,
        OperatorKind.INTERVAL_JOIN: {
            "key_type": _record_type,
            "lower_ms": _time,
            "upper_ms": _time,
            "left_late_tag": _optional(_name),
            "right_late_tag": _optional(_name),
        },
        OperatorKind.TEMPORAL_JOIN: {
            "key_type": _record_type,
            "is_outer": _flag,
            "late_tag": _optional(_name),
        },
        OperatorKind.BROADCAST_PROCESS: {"broadcast_states": _broadcast_states},
        OperatorKind.KEYED_BROADCAST_PROCESS: {"broadcast_states": _broadcast_states, **_TIMED},
        OperatorKind.PRINT: {
            "identifier": _optional(_value(lambda value: isinstance(value, str), "a text or null")),
            "collects": _flag,
        },
        OperatorKind.FILE_SINK: {
            "path": _name,
            "format": _one_of("text", "csv", "avro", "parquet", "orc", "protobuf", "json", *_BY_SPARK),
            "options": _optional(_file_options),
            "message": _message,
            "prefix": _optional(_name),
            "roll_records": _optional(_whole("a number of records, 1 or more, or null", 1)),
            "roll_ms": _optional(_size),
            "roll_bytes": _optional(_whole("a number of bytes, 1 or more", 1)),
            "inactivity_ms": _optional(_size),
            "bucket": _optional(_bucket),
            "most_open": _optional(_whole("a number of files, 1 or more", 1)),
            "success_files": _flag,
        },
        OperatorKind.KAFKA_SINK: _KAFKA_SINK,
        OperatorKind.EXTERNAL_KAFKA_SINK: {**_KAFKA_SINK, "connection": _connection},
        OperatorKind.TRANSACTIONAL_SINK: {
            "roll_records": _whole("a number of records, 1 or more", 1),
            "roll_ms": _size,
        },
        OperatorKind.FOREACH: {},
    }
)
