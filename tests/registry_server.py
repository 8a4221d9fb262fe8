"""A schema registry with Confluent's interface, as far as its clients use it; with users, tokens and TLS if asked.

Schemas of Avro are also found by the interface of Apicurio (v2).
"""

from __future__ import annotations

import json
import ssl
from typing import Any

from http_server import HttpHandler, HttpServer


class RegistryServer(HttpServer):
    """Schemas by id and by subject."""

    def __init__(self, authorization: str | None = None, context: ssl.SSLContext | None = None) -> None:
        """`authorization`: the only accepted header of that name; None: any. `context`: for TLS."""
        self.schemas: list[dict[str, Any]] = []
        """By id, from 1."""
        self.subjects: dict[str, list[int]] = {}
        self.incompatible: set[str] = set()
        """Subjects that accept no other schema."""
        self.requests = 0
        outer = self

        class Handler(HttpHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                status, found = outer._get(path.strip("/").split("/"))
                if (
                    isinstance(found, dict)
                    and found.get("schemaType") == "PROTOBUF"
                    and "format=serialized" not in query.split("&")
                ):
                    found = {**found, "schema": "the text of a .proto file"}
                self._answer(status, found)

            def do_POST(self) -> None:
                path = self.path.partition("?")[0].strip("/").split("/")
                self._answer(*outer._post(path, json.loads(self.read_body())))

            def _answer(self, status: int, found: Any) -> None:
                outer.requests += 1
                if authorization is not None and self.headers.get("Authorization") != authorization:
                    status, found = 401, {"error_code": 40101, "message": "Unauthorized"}
                content = json.dumps(found).encode()
                self.answer(status, content, Content_Type="application/vnd.schemaregistry.v1+json")

        super().__init__(Handler, context)

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Returns the id of a schema under a subject."""
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def _get(self, path: list[str]) -> tuple[int, Any]:
        match path:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, self.schemas[int(number) - 1]
            case ["apis", "registry", "v2", "ids", "contentIds", number] if (
                0 < int(number) <= len(self.schemas)
            ):
                return 200, json.loads(self.schemas[int(number) - 1]["schema"])
            case ["apis", "registry", "v2", "ids", "contentIds", _, "references"]:
                return 200, []
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                return 200, self._version(subject, self.subjects[subject][int(version) - 1])
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}

    def _post(self, path: list[str], asked: dict[str, Any]) -> tuple[int, Any]:
        match path:
            case ["subjects", subject, "versions"]:
                if subject in self.incompatible and asked not in self.schemas:
                    message = f"Schema being registered is incompatible with an earlier schema for subject {subject}"
                    return 409, {"error_code": 409, "message": message}
                return 200, {"id": self.register(subject, asked)}
            case ["subjects", subject] if asked in self.schemas:
                return 200, self._version(subject, self.schemas.index(asked) + 1)
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, schema_id: int) -> dict[str, Any]:
        version = self.subjects[subject].index(schema_id) + 1
        return {"subject": subject, "version": version, "id": schema_id, **self.schemas[schema_id - 1]}
