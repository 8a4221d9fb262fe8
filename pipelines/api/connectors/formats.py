"""Formats of the values of Kafka messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ....infra.redaction import has_user_information
from ...graph.errors import ProgramError
from ...types import PICKLED, RecordType
from ..source_location import caller_location

FormatKind = Literal["text", "raw", "json", "avro"]
Framing = Literal["single-object", "registry", "none"]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of Kafka messages. `Formats` creates it."""

    kind: FormatKind
    schema: str | None = None
    """An Avro schema as JSON text."""
    framing: Framing | None = None
    """The prefix of a value, which identifies its schema."""
    registry: str | None = None
    """URL of the schema registry."""

    def __str__(self) -> str:
        return self.kind

    def parameters(self) -> Mapping[str, Any]:
        """The value of `format` in OperatorConfig.parameters."""
        if self.kind != "avro":
            return {"kind": self.kind}
        return {"kind": self.kind, "schema": self.schema, "framing": self.framing, "registry": self.registry}

    def natural_type(self) -> RecordType:
        """The type of records without a declared type: str, bytes, or dictionaries and lists."""
        match self.kind:
            case "text":
                return RecordType.of(str)
            case "raw":
                return RecordType.of(bytes)
            case "json" | "avro":
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
    def avro(
        schema: str | Mapping[str, Any] | None = None,
        registry: str | None = None,
        framing: Framing | None = None,
    ) -> Format:
        """Avro values. A record is a `dict`, or the dataclass or NamedTuple that `output_type` declares.

        `schema` is an Avro schema as JSON text or as parsed JSON; None means the schema that follows from the record
        type, or that of the registry. With `registry`, a URL, values have Confluent's wire format. Without, they begin
        with the schema's fingerprint (Avro's single-object encoding); with framing="none" they have no prefix. A user
        and password for the registry come from the cluster's option schema.registry.basic-auth.credentials-file: a URL
        that contains them is refused. Raises ProgramError.
        """
        found: Framing = framing or ("registry" if registry else "single-object")
        if found not in ("single-object", "registry", "none"):
            raise _refusal(f"the framing {framing!r} is not single-object, registry or none")
        if (found == "registry") != (registry is not None):
            raise _refusal(
                "the framing `registry` needs the URL of a registry, and only that framing takes one"
            )
        if registry is not None and has_user_information(registry):
            raise _refusal(
                "the registry's URL contains a user or password, and would stay in the cluster's log for ever: write "
                "them into the file of schema.registry.basic-auth.credentials-file, and give the URL without them"
            )
        return Format("avro", None if schema is None else _schema_text(schema), found, registry)


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


def _refusal(reason: str) -> ProgramError:
    return ProgramError(reason, operator="Formats.avro", location=caller_location())
