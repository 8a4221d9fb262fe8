"""The OpenAPI 3.1 document of the server, made from its endpoints and their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ...infra.version import __version__
from .endpoint import Endpoint, Parameter, Text
from .errors import (
    BadRequest,
    ErrorBody,
    Forbidden,
    NotFound,
    NotSupported,
    RequestTimeout,
    RestError,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)

AT = Parameter(
    "at",
    str,
    "Answers as of this offset or time: 4711, 2026-11-22T08:30:00, 08:30, -10m (10 minutes ago).",
)
IDEMPOTENCY_KEY = "Idempotency-Key"
LAST_EVENT_ID = "Last-Event-ID"
_ALWAYS: tuple[type[RestError], ...] = (BadRequest, Unauthorized, Forbidden, TooManyRequests, Unavailable)
_WRITES: tuple[type[RestError], ...] = (RequestTimeout, TooLarge)
_BINARY = "application/octet-stream"
_FILE: Mapping[str, Any] = {
    "type": "object",
    "properties": {"jarfile": {"type": "string", "contentMediaType": _BINARY}},
    "required": ["jarfile"],
}
_OFFSET: Mapping[str, Any] = {
    "description": "The offset of the log that the answer is true at.",
    "schema": {"type": "integer", "minimum": -1},
}
_LAG: Mapping[str, Any] = {
    "description": "Of an answer of the present: the events from there to the end of the log that the server last saw.",
    "schema": {"type": "integer", "minimum": 0},
}
_EVENTS = "Server-sent events: `id` is the offset, `event` is `log`, `data` is as in a page."
_LAST_EVENT: dict[str, Any] = {
    "name": LAST_EVENT_ID,
    "in": "header",
    "required": False,
    "description": "Continues after the event with this offset, whatever `from` is.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_REF = "#/components/schemas/{name}"


def create_document(endpoints: Iterable[tuple[str, Endpoint]]) -> dict[str, Any]:
    """Returns the document of (prefix, endpoint) pairs."""
    found = list(endpoints)
    types = [ErrorBody]
    for _, endpoint in found:
        types += [each for each in (_response_of(endpoint), endpoint.body) if each not in (None, Text, bytes)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for prefix, endpoint in found:
        path = paths.setdefault(prefix + endpoint.path, {})
        path[endpoint.method.lower()] = _operation(prefix, endpoint, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tailrace",
            "version": __version__,
            "description": "Flink's REST API under /v1 (and without this prefix), and tailrace's own under /api/v1.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": _without_closed_tuples(components),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _without_closed_tuples(schema: Any) -> Any:
    """Returns a schema without `items: false`: tuples have `maxItems` too, and tools expect `items` to be a schema."""
    if isinstance(schema, dict):
        return {
            name: _without_closed_tuples(value)
            for name, value in schema.items()
            if not (name == "items" and value is False)
        }
    return [*map(_without_closed_tuples, schema)] if isinstance(schema, list) else schema


def _response_of(endpoint: Endpoint) -> Any:
    return None if NotSupported in endpoint.errors else endpoint.response_type


def _operation(prefix: str, endpoint: Endpoint, by_type: Mapping[str, Any]) -> dict[str, Any]:
    is_write = endpoint.method != "GET"
    parameters = [_parameter(each, "path") for each in endpoint.path_parameters]
    parameters += [_parameter(each, "query") for each in endpoint.query]
    # The moment of a view may be outside of the log.
    of_view = () if endpoint.view is None else (NotFound,)
    errors: Sequence[type[RestError]] = (
        *_ALWAYS,
        *(_WRITES if is_write else ()),
        *of_view,
        *endpoint.errors,
    )
    responses: dict[str, Any] = {
        str(error.status): {
            "description": (error.__doc__ or "").strip(),
            "content": {"application/json": {"schema": by_type[repr(ErrorBody)]}},
        }
        for error in errors
    }
    response = _response_of(endpoint)
    if response is bytes:
        responses["200"] = {
            "description": "The bytes.",
            "content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}},
        }
    elif endpoint.stream is not None:
        responses["200"] = {
            "description": endpoint.stream_doc or _EVENTS,
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
        if not endpoint.stream_doc:
            parameters.append(_LAST_EVENT)
    elif response is Text:
        responses["200"] = {
            "description": "Lines of text.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    elif response is not None:
        lag = {"Tailrace-Lag": _LAG} if endpoint.view is not None else {}
        responses[str(endpoint.status)] = {
            "description": "The answer.",
            "headers": {"Tailrace-Offset": _OFFSET, **lag},
            "content": {"application/json": {"schema": by_type[repr(response)]}},
        }
        if endpoint.view is not None:
            parameters.append(_parameter(AT, "query"))
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "description": f"Needs the role {endpoint.needed_role.label}.",
        "operationId": f"{endpoint.method.lower()}{(prefix + endpoint.path).replace('/', '_')}",
        "parameters": parameters,
        "responses": dict(sorted(responses.items())),
    }
    if endpoint.command is not None and is_write:
        operation["parameters"].append(
            {
                "name": IDEMPOTENCY_KEY,
                "in": "header",
                "required": False,
                "description": "Requests with the same key are one request.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
            }
        )
    if endpoint.takes_file:
        operation["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FILE}}}
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": endpoint.needs_body,
            "content": {"application/json": {"schema": by_type[repr(endpoint.body)]}},
        }
    return operation


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema: dict[str, Any]
    if parameter.type is int:
        schema = {"type": "integer"}
        if parameter.minimum is not None:
            schema["minimum"] = parameter.minimum
        if parameter.maximum is not None:
            schema["maximum"] = parameter.maximum
    else:
        schema = msgspec.json.schema(parameter.type)
        if "$ref" in schema:
            (schema,) = schema["$defs"].values()
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "description": parameter.doc,
        "schema": schema,
    }
