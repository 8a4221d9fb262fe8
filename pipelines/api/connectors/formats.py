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
    """Made by `Formats`."""

    kind: FormatKind
    schema: str | None = None
    """An Avro schema as JSON text."""
    framing: Framing | None = None
    """What stands before a value and says its schema."""
    registry: str | None = None
    """URL of the schema registry."""

    def __str__(self) -> str:
        return self.kind

    def parameters(self) -> Mapping[str, Any]:
        """`format` in OperatorConfig.parameters."""
        if self.kind != "avro":
            return {"kind": self.kind}
        return {"kind": self.kind, "schema": self.schema, "framing": self.framing, "registry": self.registry}

    def natural_type(self) -> RecordType:
        """Of records whose type is not declared: str, bytes, or whatever dictionaries and lists the values hold."""
        match self.kind:
            case "text":
                return RecordType.of(str)
            case "raw":
                return RecordType.of(bytes)
            case "json" | "avro":
                return PICKLED


class Formats:
    """The formats that there are."""

    @staticmethod
    def text() -> Format:
        """UTF-8; a record is a `str`. A sink writes `str(record)`."""
        return Format("text")

    @staticmethod
    def raw() -> Format:
        """A record is `bytes`."""
        return Format("raw")

    @staticmethod
    def json() -> Format:
        """A JSON value; an object is a `dict`, or the dataclass or NamedTuple that `output_type` declares."""
        return Format("json")

    @staticmethod
    def avro(
        schema: str | Mapping[str, Any] | None = None,
        registry: str | None = None,
        framing: Framing | None = None,
    ) -> Format:
        """An Avro value; a record is a `dict`, or the dataclass or NamedTuple that `output_type` declares.

        `schema` is an Avro schema as JSON text or as what JSON makes of that; None: the one that follows from the
        record type, or that the registry has. With `registry`, its URL, values have Confluent's wire format;
        without, they begin with the schema's fingerprint (Avro's single-object encoding); with framing="none" they
        are bare. A user and password for the registry come from the cluster's option
        schema.registry.basic-auth.credentials-file: a URL that holds them is refused. Raises ProgramError.
        """
        found: Framing = framing or ("registry" if registry else "single-object")
        if found not in ("single-object", "registry", "none"):
            raise _refusal(f"the framing {framing!r} is none of single-object, registry and none")
        if (found == "registry") != (registry is not None):
            raise _refusal("a registry goes with the framing `registry`, and needs its URL")
        if registry is not None and has_user_information(registry):
            raise _refusal(
                "the registry's URL holds a user or password, and the URL stays in the cluster's log for ever: write "
                "them into the file of schema.registry.basic-auth.credentials-file, and give the URL without them"
            )
        return Format("avro", None if schema is None else _schema_text(schema), found, registry)


def _schema_text(schema: str | Mapping[str, Any]) -> str:
    from fastavro.schema import parse_schema

    text = schema if isinstance(schema, str) else json.dumps(schema)
    try:
        form = json.loads(text)
    except ValueError as error:
        raise _refusal(f"the schema is no JSON text: {error}") from error
    try:
        parse_schema(form, named_schemas={})
    except Exception as error:  # fastavro's errors have no base of their own
        raise _refusal(f"the schema is none of Avro: {type(error).__name__}: {error}") from error
    return text


def _refusal(reason: str) -> ProgramError:
    return ProgramError(reason, operator="Formats.avro", location=caller_location())
