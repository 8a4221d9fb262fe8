"""The ASGI application: from a request to an endpoint, and from its answer or error to a response.

Nothing of a request stays in memory after its response. A body is read up to its limit, and only by endpoints that have
one. Reads wait in threads, so the event loop never blocks.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...infra.logging_setup import logger
from ...infra.redaction import redacted
from .endpoint import Answer, Endpoint
from .errors import (
    BadRequest,
    ErrorBody,
    Forbidden,
    NotFound,
    NotSupported,
    RequestTimeout,
    RestError,
    TooLarge,
    Unauthorized,
)
from .moment import Moment
from .openapi import AT, IDEMPOTENCY_KEY, create_document

_log = logger(__name__)
_JSON = "application/json; charset=UTF-8"
_BODY_TIMEOUT_S = 20.0
_KEY = re.compile(r"[!-~]{1,128}")
_PREFIXES = ("/v1", "")
OPENAPI_PATH = "/api/v1/openapi.json"

ReadMoment = Callable[[str | None], AbstractContextManager[Moment]]
"""Returns the moment of `at`; None: the present."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`token`: None if every request is served. `max_content_length`: the most bytes of a body."""

    token: bytes | None = None
    max_content_length: int = 1 << 20


def create_application(
    read: ReadMoment,
    flink: Sequence[Endpoint],
    own: Sequence[Endpoint] = (),
    settings: Settings | None = None,
    others: Sequence[BaseRoute] = (),
) -> Starlette:
    """Returns the application with Flink's endpoints at / and /v1, and tailrace's own at /api/v1. `others` are routes
    that need no token: those of the page."""
    shell = _Shell(read, settings or Settings())
    routes = [
        *(_route(prefix, endpoint, shell) for prefix in _PREFIXES for endpoint in _ordered(flink)),
        *(_route("/api/v1", endpoint, shell) for endpoint in _ordered(own)),
    ]
    document = encode_document(flink, own)

    async def openapi(request: Request) -> Response:
        return await shell.guard(request, lambda: _immediate(Response(document, media_type=_JSON)))

    routes.append(Route(OPENAPI_PATH, openapi))
    application = Starlette(routes=[*routes, *others], exception_handlers={HTTPException: _on_http_error})
    application.router.redirect_slashes = False
    return application


def encode_document(flink: Sequence[Endpoint], own: Sequence[Endpoint]) -> bytes:
    """Returns the OpenAPI document of all endpoints, in JSON."""
    return msgspec.json.encode(
        create_document([*(("/v1", each) for each in flink), *(("/api/v1", each) for each in own)])
    )


async def _immediate(response: Response) -> Response:
    return response


def _ordered(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Returns endpoints with fixed names before those with a parameter in the same place."""
    return sorted(endpoints, key=lambda endpoint: [part.startswith("{") for part in endpoint.path.split("/")])


def _route(prefix: str, endpoint: Endpoint, shell: _Shell) -> Route:
    async def handle(request: Request) -> Response:
        return await shell.guard(request, lambda: shell.answer(endpoint, request))

    return Route(prefix + endpoint.path, handle, methods=[endpoint.method])


class _Shell:
    def __init__(self, read: ReadMoment, settings: Settings) -> None:
        self._read = read
        self._settings = settings

    async def guard(self, request: Request, answer: Callable[[], Any]) -> Response:
        """Checks who asks, and turns errors into responses."""
        try:
            self._check_token(request)
            response: Response = await answer()
            return response
        except RestError as error:
            return _error_response(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            _log.exception("a request failed", method=request.method, path=request.url.path[:200])
            return _error_response(RestError("Internal server error: the log of the server says why."))

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        if NotSupported in endpoint.errors:
            raise NotSupported(f"tailrace does not support {endpoint.method} {request.url.path[:200]}.")
        parameters = _read_parameters(endpoint, request)
        if endpoint.view is not None:
            return await run_in_threadpool(
                self._view, endpoint, parameters, request.query_params.get(AT.name)
            )
        assert endpoint.command is not None
        _check_origin(request)
        body = await self._read_body(endpoint, request) if endpoint.body is not None else None
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is not None and _KEY.fullmatch(key) is None:
            raise BadRequest(f"{IDEMPOTENCY_KEY} has 1 to 128 printable characters without spaces.")
        answer: Answer = await run_in_threadpool(endpoint.command, parameters, body, key)
        return _response(answer.body, answer.status, answer.offset)

    def _view(self, endpoint: Endpoint, parameters: Mapping[str, Any], at: str | None) -> Response:
        assert endpoint.view is not None
        with self._read(at) as moment:
            offset, value = moment.offset, endpoint.view(moment, parameters)
            return _response(value, endpoint.status, offset)

    def _check_token(self, request: Request) -> None:
        token = self._settings.token
        if token is None:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token):
            raise Unauthorized(
                "The request needs the header `Authorization: Bearer <token>` with the token of rest.token-file.",
                {"WWW-Authenticate": "Bearer"},
            )

    async def _read_body(self, endpoint: Endpoint, request: Request) -> Any:
        limit = self._settings.max_content_length
        too_large = TooLarge(
            f"The body is larger than {limit:,} bytes (rest.server.max-content-length).",
            {"Connection": "close"},
        )
        length = request.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise too_large
        content = bytearray()
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                async for chunk in request.stream():
                    if len(content) + len(chunk) > limit:
                        raise too_large
                    content += chunk
        except TimeoutError:
            raise RequestTimeout(
                f"The body did not arrive within {_BODY_TIMEOUT_S:g} s.", {"Connection": "close"}
            ) from None
        if not content.strip() and not endpoint.needs_body:
            return endpoint.body()
        try:
            return msgspec.json.decode(content, type=endpoint.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"The body is not as expected: {str(error)[:300]}.") from None


def _read_parameters(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    found = {
        each.name: each.read(request.path_params[each.name], "path") for each in endpoint.path_parameters
    }
    for each in endpoint.query:
        text = request.query_params.get(each.name)
        if text is not None:
            found[each.name] = each.read(text, "query")
    return found


def _check_origin(request: Request) -> None:
    """A page of another site must not write with the rights of a visitor's machine."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        raise Forbidden("The request comes from a page of another site.")


def _response(value: Any, status: int, offset: int | None) -> Response:
    headers = {} if offset is None else {"Tailrace-Offset": str(offset)}
    # As every output for people: reasons, stack traces and options may have a URL with a password.
    return Response(redacted(msgspec.json.encode(value).decode()), status, headers, _JSON)


def _error_response(error: RestError) -> Response:
    body = msgspec.json.encode(ErrorBody([error.message]))
    return Response(body, error.status, dict(error.headers), _JSON)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """A path that does not exist, or not with this method: Flink answers 404 for both."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:200]
    if status == 405:
        return _error_response(NotFound(f"Not found: {path}"))
    return _error_response(NotFound(f"Unable to load requested file {path}."))
