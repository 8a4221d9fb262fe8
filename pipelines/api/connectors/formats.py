"""Formats of the values of Kafka messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ....infra.redaction import has_user_information
from ...functions.change_event import ChangeEvent
from ...graph import protobuf_classes
from ...graph.errors import ProgramError
from ...graph.registry_properties import find_registry_errors
from ...types import PICKLED, RecordType
from ..checks import is_text
from ..source_location import caller_location

FormatKind = Literal["text", "raw", "csv", "json", "json-schema", "debezium-json", "avro", "protobuf"]
Framing = Literal["single-object", "registry", "none"]
SubjectStrategy = Literal["topic", "record", "topic-record"]


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry with Confluent's interface.

    `subject`: the subject of a schema is `<topic>-value` (or `-key`), the record's name, or `<topic>-<record's name>`
    (Confluent's TopicNameStrategy, RecordNameStrategy, TopicRecordNameStrategy). `properties`: those of Confluent's
    client: `ssl.ca.location`, `ssl.certificate.location`, `ssl.key.location`, `timeout`; a secret is named as a file,
    `bearer.auth.token-file` or `basic.auth.user.info-file`. The files are on every machine of the cluster. `register`:
    whether a sink registers its schema; otherwise the schema must be there.
    """

    url: str
    subject: SubjectStrategy = "topic"
    properties: Mapping[str, str] = field(default_factory=dict)
    register: bool = True


@dataclass(frozen=True, slots=True)
class Format:
    """A format of Kafka messages. `Formats` creates it."""

    kind: FormatKind
    schema: str | None = None
    """A schema of Avro or JSON Schema as JSON text."""
    framing: Framing | None = None
    """The prefix of a value, which identifies its schema."""
    registry: SchemaRegistry | None = None
    delimiter: str | None = None
    message: str | None = None
    """The name of a message class of Protobuf."""

    def __str__(self) -> str:
        return self.kind

    def parameters(self) -> Mapping[str, Any]:
        """The value of `format` in OperatorConfig.parameters."""
        match self.kind:
            case "avro" | "json-schema":
                framing = {"framing": self.framing} if self.kind == "avro" else {}
                return {"kind": self.kind, "schema": self.schema, **framing, **self._registry_parameters()}
            case "protobuf":
                return {"kind": self.kind, "message": self.message, **self._registry_parameters()}
            case "csv":
                return {"kind": self.kind, "delimiter": self.delimiter}
            case _:
                return {"kind": self.kind}

    def _registry_parameters(self) -> Mapping[str, Any]:
        registry = self.registry
        if registry is None:
            return {"registry": None}
        found: dict[str, Any] = {"registry": registry.url}
        if registry.subject != "topic":
            found["subject"] = registry.subject
        if registry.properties:
            found["registry_properties"] = dict(registry.properties)
        if not registry.register:
            found["register"] = False
        return found

    def natural_type(self) -> RecordType:
        """The type of records without a declared type: str, bytes, messages, or dictionaries and lists."""
        match self.kind:
            case "text":
                return RecordType.of(str)
            case "raw":
                return RecordType.of(bytes)
            case "csv":
                return RecordType.of(list[str])
            case "debezium-json":
                return RecordType.of(ChangeEvent)
            case "json" | "json-schema" | "avro" | "protobuf":
                return PICKLED


class Formats:
    """The available formats."""

    @staticmethod
    def text() -> Format:
        """UTF-8 text. A record is a `str`; a sink writes `str(record)`."""
        return Format("text")

    @staticmethod
    def raw() -> Format:
        """Bytes. A record is `bytes`."""
        return Format("raw")

    @staticmethod
    def json() -> Format:
        """JSON values. An object is a `dict`, or the dataclass or NamedTuple that `output_type` declares."""
        return Format("json")

    @staticmethod
    def csv(delimiter: str = ",") -> Format:
        """One row of comma-separated values in each message, without a header (RFC 4180).

        A record is a `list[str]`, or the tuple, dataclass or NamedTuple that `output_type` declares, by position, with
        fields of type str, int, float and bool (`true`, `false`). An empty value is None if the field's type takes it.
        Raises ProgramError.
        """
        if not is_text(delimiter) or len(delimiter) != 1 or delimiter in '"\r\n':
            raise _refusal(f"the delimiter is {delimiter!r}, not one character", "csv")
        return Format("csv", delimiter=delimiter)

    @staticmethod
    def json_schema(
        schema: str | Mapping[str, Any] | None = None, registry: str | SchemaRegistry | None = None
    ) -> Format:
        """JSON values in Confluent's wire format, with a JSON Schema in a registry.

        A source checks a value against the schema that it names. A sink writes with `schema`, or with the schema that
        follows from the record type, and registers it. Raises ProgramError.
        """
        if registry is None:
            raise _refusal("it needs the URL of a schema registry", "json_schema")
        text = None if schema is None else _json_schema_text(schema)
        return Format("json-schema", text, registry=_checked_registry(registry, "json_schema"))

    @staticmethod
    def debezium_json() -> Format:
        """Debezium's change events as JSON, with or without Connect's schema around the payload.

        A record is a `ChangeEvent`; declare `output_type=ChangeEvent[T]` for rows of type T. A source skips the
        tombstones that follow deletions, unless it says otherwise.
        """
        return Format("debezium-json")

    @staticmethod
    def avro(
        schema: str | Mapping[str, Any] | None = None,
        registry: str | SchemaRegistry | None = None,
        framing: Framing | None = None,
    ) -> Format:
        """Avro values. A record is a `dict`, or the dataclass or NamedTuple that `output_type` declares.

        `schema` is an Avro schema as JSON text or as parsed JSON; None means the schema that follows from the record
        type, or that of the registry. With `registry`, a URL or a `SchemaRegistry`, values have Confluent's wire
        format. Without, they begin with the schema's fingerprint (Avro's single-object encoding); with framing="none"
        they have no prefix. A user and password for the registry come from the cluster's option
        schema.registry.basic-auth.credentials-file: a URL that contains them is refused. Raises ProgramError.
        """
        found: Framing = framing or ("registry" if registry else "single-object")
        if found not in ("single-object", "registry", "none"):
            raise _refusal(f"the framing {framing!r} is not single-object, registry or none")
        if (found == "registry") != (registry is not None):
            raise _refusal(
                "the framing `registry` needs the URL of a registry, and only that framing takes one"
            )
        checked = None if registry is None else _checked_registry(registry, "avro")
        return Format("avro", None if schema is None else _schema_text(schema), found, checked)

    @staticmethod
    def protobuf(message: type | None = None, registry: str | SchemaRegistry | None = None) -> Format:
        """Protobuf messages. It needs the package protobuf: `pip install 'tailrace[protobuf]'`.

        `message`: a class that protoc generated, from a module that the job ships. A record is an object of this class;
        without a class a `dict`, as the schema in the registry says; or the dataclass or NamedTuple that `output_type`
        declares. A sink needs the class, and takes its objects, dicts, dataclasses and NamedTuples. With `registry`
        values have Confluent's wire format, and a sink registers the schema of the class and those that it imports.
        Without, a value is a message and nothing else. Raises ProgramError.
        """
        if message is None and registry is None:
            raise _refusal("it needs a message class, a schema registry, or both", "protobuf")
        try:
            protobuf_classes.check_protobuf()
            name = None if message is None else protobuf_classes.name_of(message)
        except ValueError as error:
            raise _refusal(str(error), "protobuf") from None
        checked = None if registry is None else _checked_registry(registry, "protobuf")
        return Format("protobuf", registry=checked, message=name)


def _checked_registry(registry: str | SchemaRegistry, form: str) -> SchemaRegistry:
    found = registry if isinstance(registry, SchemaRegistry) else SchemaRegistry(registry)
    if has_user_information(found.url):
        raise _refusal(
            "the registry's URL contains a user or password, and would stay in the cluster's log for ever: write "
            "them into the file of schema.registry.basic-auth.credentials-file, and give the URL without them",
            form,
        )
    if found.subject not in ("topic", "record", "topic-record"):
        raise _refusal(f"the subject strategy {found.subject!r} is not topic, record or topic-record", form)
    for fault in find_registry_errors(found.properties):
        raise _refusal(fault, form)
    return found


def _json_schema_text(schema: str | Mapping[str, Any]) -> str:
    import jsonschema

    try:
        form = json.loads(schema) if isinstance(schema, str) else schema
        jsonschema.validators.validator_for(form).check_schema(form)
    except (ValueError, jsonschema.SchemaError) as error:
        reason = str(error).splitlines()[0]
        raise _refusal(f"the schema is not a valid JSON Schema: {reason}", "json_schema") from error
    return schema if isinstance(schema, str) else json.dumps(schema)


def _schema_text(schema: str | Mapping[str, Any]) -> str:
    from fastavro.schema import parse_schema

    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        form = json.loads(text)
    except ValueError as error:
        raise _refusal(f"the schema is not JSON: {error}") from error
    try:
        parse_schema(form, named_schemas={})
    except Exception as error:  # fastavro's errors have no common base class
        raise _refusal(f"the schema is not a valid Avro schema: {type(error).__name__}: {error}") from error
    return text


def _refusal(reason: str, form: str = "avro") -> ProgramError:
    return ProgramError(reason, operator=f"Formats.{form}", location=caller_location())
