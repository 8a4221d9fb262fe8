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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....infra.redaction import redacted
from ...graph.registry_credentials import read_credentials
from ..common.failures import TaskError
from .avro_schema import Schema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

CREDENTIALS_FILE_VARIABLE: Final = "TAILRACE_SCHEMA_REGISTRY_BASIC_AUTH_CREDENTIALS_FILE"
_NOT_FOUND: Final = 404
_clients: dict[str, SchemaRegistryClient] = {}


class SchemaRegistry:
    """Schemas by id, and ids of schemas. `cache` is a directory of this user."""

    def __init__(self, url: str, cache: Path | None = None) -> None:
        self._url = url
        self._cache = cache
        self._schemas: dict[int, Schema] = {}

    def schema(self, schema_id: int) -> Schema:
        """Returns the schema of an id. Raises ValueError for an unknown id, TaskError if the registry does not
        answer."""
        if schema_id not in self._schemas:
            texts = self._remembered(schema_id)
            if texts is None:
                texts = self._ask(schema_id)
                self._remember(schema_id, texts)
            named: dict[str, Any] = {}
            *references, own = texts
            for text in references:
                Schema(json.loads(text), named)
            self._schemas[schema_id] = Schema(json.loads(own), named)
        return self._schemas[schema_id]

    def register(self, subject: str, schema: Schema) -> int:
        """Returns the id of a schema; registers it under the subject if necessary. Raises TaskError."""
        from confluent_kafka.schema_registry import Schema as Registered

        try:
            return int(self._client().register_schema(subject, Registered(str(schema), "AVRO")))
        except Exception as error:  # any error of its HTTP client
            raise TaskError(
                f"the schema registry {self._url} does not accept {subject}: {_short(error)};"
                " is the schema compatible, the address right?"
            ) from error

    def _ask(self, schema_id: int) -> list[str]:
        """Returns the texts of the schemas that it refers to, and then its own."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            found = self._client().get_schema(schema_id)
            return self._with_references(found)
        except SchemaRegistryError as error:
            if error.http_status_code == _NOT_FOUND:
                raise ValueError(f"the schema registry {self._url} has no schema {schema_id}") from error
            raise self._silent(error) from error
        except Exception as error:  # any error of its HTTP client
            raise self._silent(error) from error

    def _with_references(self, schema: Any) -> list[str]:
        texts: list[str] = []
        for reference in schema.references or ():
            version = self._client().get_version(reference.subject, reference.version)
            texts += [text for text in self._with_references(version.schema) if text not in texts]
        return [*texts, schema.schema_str]

    def _silent(self, error: Exception) -> TaskError:
        return TaskError(f"the schema registry {self._url} cannot be reached: {_short(error)}; is it up?")

    def _client(self) -> SchemaRegistryClient:
        if self._url not in _clients:
            from confluent_kafka.schema_registry import SchemaRegistryClient

            configuration: dict[str, Any] = {"url": self._url, "max.retries": 1}
            if (credentials := self._credentials()) is not None:
                configuration["basic.auth.user.info"] = credentials
            _clients[self._url] = SchemaRegistryClient.new_client(configuration)
        return _clients[self._url]

    def _credentials(self) -> str | None:
        try:
            return read_credentials(os.environ.get(CREDENTIALS_FILE_VARIABLE) or None, self._url)
        except ValueError as error:
            raise TaskError(f"schema.registry.basic-auth.credentials-file: {error}") from None

    def _file(self, schema_id: int) -> Path | None:
        if self._cache is None or self._url.startswith("mock:"):
            return None
        return self._cache / f"schema-{hashlib.sha256(self._url.encode()).hexdigest()[:16]}-{schema_id}"

    def _remembered(self, schema_id: int) -> list[str] | None:
        file = self._file(schema_id)
        if file is None or not file.exists():
            return None
        texts: list[str] = json.loads(file.read_bytes())
        return texts

    def _remember(self, schema_id: int, texts: list[str]) -> None:
        file = self._file(schema_id)
        if file is not None:
            # Written by rename, because other processes read it at any time. A cache that cannot be written is
            # ignored.
            with contextlib.suppress(OSError):
                whole = file.with_suffix(f".{os.getpid()}")
                whole.write_text(json.dumps(texts))
                whole.rename(file)


def _short(error: Exception) -> str:
    return redacted(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
