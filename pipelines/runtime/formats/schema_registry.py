"""Access to a schema registry through confluent-kafka's client: one client for each address in a process.

The meaning of an id never changes, so answers are also cached in files: there are many Python workers of Spark, they
live shortly, and importing the client takes a third of a second.

Credentials come from the file that the environment variable CREDENTIALS_FILE_VARIABLE names: the TaskExecutor sets it,
and its StreamTasks and Spark's Python workers inherit it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ....infra.redaction import redacted
from ...graph.registry_credentials import read_credentials
from ...graph.registry_properties import read_registry_properties
from ..common.failures import TaskError
from .avro_schema import Schema
from .format import ValueFormat

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

CREDENTIALS_FILE_VARIABLE: Final = "TAILRACE_SCHEMA_REGISTRY_BASIC_AUTH_CREDENTIALS_FILE"
_NOT_FOUND: Final = 404
_clients: dict[tuple[str, tuple[tuple[str, str], ...]], SchemaRegistryClient] = {}


class RegisteredText(NamedTuple):
    """The text of a schema, and the name by which the next ones refer to it."""

    name: str
    text: str


class SchemaReference(NamedTuple):
    """A schema that another one refers to by the name: its subject and its version there."""

    name: str
    subject: str
    version: int


class SchemaRegistry:
    """Schemas by id, and ids of schemas. `cache` is a directory of this user."""

    def __init__(
        self, url: str, cache: Path | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        self._url = url
        self._cache = cache
        self._properties = dict(properties or {})
        self._schemas: dict[int, Schema] = {}

    @classmethod
    def of_format(cls, of: ValueFormat, cache: Path | None = None) -> SchemaRegistry:
        """Returns the registry of a format. Raises TaskError if it names none."""
        if of.registry is None:
            raise TaskError(
                f"{of.kind} with a schema registry needs its address: give `registry`, or another format or framing"
            )
        return cls(of.registry, cache, of.registry_properties)

    def schema(self, schema_id: int) -> Schema:
        """Returns the Avro schema of an id. Raises ValueError for an unknown id, TaskError if the registry does not
        answer."""
        if schema_id not in self._schemas:
            named: dict[str, Any] = {}
            *references, own = self.texts(schema_id)
            for reference in references:
                Schema(json.loads(reference.text), named)
            self._schemas[schema_id] = Schema(json.loads(own.text), named)
        return self._schemas[schema_id]

    def texts(self, schema_id: int, form: str | None = None) -> list[RegisteredText]:
        """Returns the schemas that a schema refers to, and then its own text. Raises like `schema`.

        `form`: the registry's `format` of texts; "serialized" for Protobuf.
        """
        texts = self._remembered(schema_id)
        if texts is None:
            texts = self._ask(schema_id, form)
            self._remember(schema_id, texts)
        return texts

    def find_id(
        self,
        subject: str,
        text: str,
        kind: str,
        references: Sequence[SchemaReference] = (),
        *,
        register: bool = True,
    ) -> int:
        """Returns the id of a schema under the subject; registers it if necessary, unless `register` is false.

        `kind`: AVRO, JSON or PROTOBUF. Raises TaskError.
        """
        if not register:
            return int(self._look_up(subject, text, kind, references).schema_id or 0)
        schema = _schema_of(text, kind, references)
        return int(self._call(subject, lambda: self._client().register_schema(subject, schema)))

    def find_version(
        self, subject: str, text: str, kind: str, references: Sequence[SchemaReference] = ()
    ) -> int:
        """Returns the version of a registered schema under the subject. Raises TaskError."""
        return int(self._look_up(subject, text, kind, references).version or 0)

    def _look_up(self, subject: str, text: str, kind: str, references: Sequence[SchemaReference]) -> Any:
        schema = _schema_of(text, kind, references)
        return self._call(subject, lambda: self._client().lookup_schema(subject, schema))

    def _call(self, subject: str, ask: Callable[[], Any]) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as error:
            raise TaskError(f"{self._refusal(subject, error)}: {_short(error)}") from error
        except TaskError:
            raise
        except Exception as error:  # any error of its HTTP client
            raise self._silent(error) from error

    def _refusal(self, subject: str, error: SchemaRegistryError) -> str:
        match error.http_status_code:
            case 401 | 403:
                return f"the schema registry {self._url} does not let this user write or read {subject}"
            case 404:
                return f"the schema registry {self._url} has no such schema under {subject}: register it"
            case 409:
                return (
                    f"the schema registry {self._url} does not accept {subject}, because the schema is not compatible"
                    " with an earlier one: change the record type compatibly, or the subject's compatibility level"
                )
            case _:
                return f"the schema registry {self._url} does not accept {subject}"

    def _ask(self, schema_id: int, form: str | None) -> list[RegisteredText]:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            found = self._client().get_schema(schema_id, fmt=form)
            return self._with_references("", found, form)
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise ValueError(f"the schema registry {self._url} has no schema {schema_id}") from error
            raise self._silent(error) from error
        except TaskError:
            raise
        except Exception as error:  # any error of its HTTP client
            raise self._silent(error) from error

    def _with_references(self, name: str, schema: Any, form: str | None) -> list[RegisteredText]:
        texts: list[RegisteredText] = []
        for reference in schema.references or ():
            version = self._client().get_version(reference.subject, reference.version, fmt=form)
            more = self._with_references(reference.name, version.schema, form)
            texts += [text for text in more if text not in texts]
        return [*texts, RegisteredText(name, schema.schema_str)]

    def _silent(self, error: Exception) -> TaskError:
        return TaskError(f"the schema registry {self._url} cannot be reached: {_short(error)}; is it up?")

    def _client(self) -> SchemaRegistryClient:
        key = self._url, tuple(sorted(self._properties.items()))
        if key not in _clients:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            configuration: dict[str, Any] = {"url": self._url, "max.retries": 1}
            try:
                configuration |= read_registry_properties(self._properties)
            except ValueError as error:
                raise TaskError(f"the schema registry {self._url}: {error}") from None
            own = any("auth" in name for name in self._properties)
            if not own and (credentials := self._credentials()) is not None:
                configuration["basic.auth.user.info"] = credentials
            _clients[key] = SchemaRegistryClient.new_client(configuration)
        return _clients[key]

    def _credentials(self) -> str | None:
        try:
            return read_credentials(os.environ.get(CREDENTIALS_FILE_VARIABLE) or None, self._url)
        except ValueError as error:
            raise TaskError(f"schema.registry.basic-auth.credentials-file: {error}") from None

    def _file(self, schema_id: int) -> Path | None:
        if self._cache is None or self._url.startswith("mock:"):
            return None
        return self._cache / f"schema-{hashlib.sha256(self._url.encode()).hexdigest()[:16]}-{schema_id}"

    def _remembered(self, schema_id: int) -> list[RegisteredText] | None:
        file = self._file(schema_id)
        if file is None or not file.exists():
            return None
        return [RegisteredText(*pair) for pair in json.loads(file.read_bytes())]

    def _remember(self, schema_id: int, texts: list[RegisteredText]) -> None:
        file = self._file(schema_id)
        if file is not None:
            # Written by rename, because other processes read it at any time. A cache that cannot be written is
            # ignored.
            with contextlib.suppress(OSError):
                whole = file.with_suffix(f".{os.getpid()}")
                whole.write_text(json.dumps(texts))
                whole.rename(file)


def _schema_of(text: str, kind: str, references: Sequence[SchemaReference]) -> Any:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    return Schema(text, kind, [SchemaReference(*reference) for reference in references])


def _short(error: Exception) -> str:
    return redacted(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
