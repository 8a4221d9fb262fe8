"""The ASGI application: from a request to an endpoint, and from its answer or error to a response.

Before an endpoint is called, the principal of the request is found, its role is compared with the endpoint's, and its
requests are counted. Nothing of a request stays in memory after its response. A body is read up to its limit, and only
by endpoints that have one. Reads wait in threads, so the event loop never blocks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...infra.logging_setup import logger
from ...infra.open_telemetry import TRACEPARENT, use_traceparent
from ...infra.redaction import redacted
from .authenticator import Authenticator
from .browser_security import check_host, check_origin, create_middleware
from .endpoint import Answer, Endpoint, Text
from .errors import (
    BadRequest,
    ErrorBody,
    NotFound,
    NotSupported,
    RequestTimeout,
    RestError,
    TooLarge,
    Unavailable,
)
from .moment import Moment
from .openapi import AT, IDEMPOTENCY_KEY, LAST_EVENT_ID, create_document
from .principal import ANONYMOUS, Principal, Role, acting_as
from .rate_limiter import RateLimiter
from .uploads import read_file

_log = logger(__name__)
_JSON = "application/json; charset=UTF-8"
_BODY_TIMEOUT_S = 20.0
MAX_JSON_BYTES: Final = 1 << 20
MAX_UPLOADS: Final = 4
"""Each may need as much temporary disk space as a body may have."""
_KEY = re.compile(r"[!-~]{1,128}")
_PREFIXES = ("/v1", "")
OPENAPI_PATH = "/api/v1/openapi.json"

ReadMoment = Callable[[str | None, Mapping[str, Any]], AbstractContextManager[Moment]]
"""Returns the moment of `at` (None: the present) for a request with these parameters."""
ReadLive = Callable[[Mapping[str, Any]], AbstractContextManager[Moment]]
"""Returns the present with the metrics of TaskExecutors, for a request with these parameters."""


CERTIFICATE_SUBJECT: Final = "tailrace_certificate_subject"
"""The key, in the state of a connection, of the subject of the client's verified certificate."""
IS_SURPLUS: Final = "tailrace_is_surplus"
"""The key, in the state of a connection, that it is one too many."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`authenticator`: None if every request is served. `max_content_length`: the most bytes of a body;
    one in JSON may have 1 MiB at most.
    `max_requests_per_second`: of one principal; None: any. `allowed_origin`: of pages that may use the API beside the
    server's own. `checks_host`: whether requests must name the server by its address, by `localhost` or by `host`."""

    authenticator: Authenticator | None = None
    max_content_length: int = 1 << 20
    max_requests_per_second: int | None = None
    allowed_origin: str | None = None
    checks_host: bool = False
    host: str | None = None


def create_application(
    read: ReadMoment,
    flink: Sequence[Endpoint],
    own: Sequence[Endpoint] = (),
    settings: Settings | None = None,
    others: Sequence[BaseRoute] = (),
    *,
    read_live: ReadLive | None = None,
    limiter: RateLimiter | None = None,
) -> Starlette:
    """Returns the application with Flink's endpoints at / and /v1, and tailrace's own at /api/v1. `others` are routes
    that need no token: those of the page. `read_live`: for endpoints that are live; None: they have no metrics.
    `limiter`: of all applications of a server; None: the application has its own."""
    settings = settings or Settings()
    handler = _RequestHandler(
        read,
        read_live or (lambda parameters: read(None, parameters)),
        settings,
        limiter or RateLimiter.up_to(settings.max_requests_per_second),
    )
    routes = [
        *(_route(prefix, endpoint, handler) for prefix in _PREFIXES for endpoint in _ordered(flink)),
        *(_route("/api/v1", endpoint, handler) for endpoint in _ordered(own)),
    ]
    document = encode_document(flink, own)

    async def openapi(request: Request) -> Response:
        return await handler.guard(
            request, lambda: _immediate(Response(document, media_type=_JSON)), Role.READER
        )

    routes.append(Route(OPENAPI_PATH, openapi))
    application = Starlette(
        routes=[*routes, *others],
        exception_handlers={HTTPException: _on_http_error},
        middleware=create_middleware(settings.allowed_origin),
    )
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


def _route(prefix: str, endpoint: Endpoint, handler: _RequestHandler) -> Route:
    async def handle(request: Request) -> Response:
        return await handler.guard(request, lambda: handler.answer(endpoint, request), endpoint.needed_role)

    return Route(prefix + endpoint.path, handle, methods=[endpoint.method])


class _RequestHandler:
    def __init__(
        self, read: ReadMoment, read_live: ReadLive, settings: Settings, limiter: RateLimiter | None
    ) -> None:
        self._read = read
        self._read_live = read_live
        self._settings = settings
        self._limiter = limiter
        self._uploads = asyncio.Semaphore(MAX_UPLOADS)

    async def guard(self, request: Request, answer: Callable[[], Any], role: Role) -> Response:
        """Checks who asks, and turns errors into responses. `role`: what the request needs."""
        try:
            _check_connection(request.scope.get("state", {}))
            if self._settings.checks_host:
                check_host(request, self._settings.host)
            principal = await self._find_principal(request)
            if self._limiter is not None:
                self._limiter.take(principal.name)
            principal.check(role, f"{request.method} {_path(request)}")
            if request.method not in ("GET", "HEAD") or role > Role.READER:
                check_origin(request, self._settings.allowed_origin)
            with acting_as(principal):
                response: Response = await answer()
            return response
        except RestError as error:
            return _error_response(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            _log.exception("a request failed", method=request.method, path=_path(request))
            return _error_response(RestError("Internal server error: the log of the server says why."))

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        if NotSupported in endpoint.errors:
            raise NotSupported(
                f"tailrace does not support {endpoint.method} {_path(request)}: {endpoint.instead}."
            )
        parameters = _read_parameters(endpoint, request)
        if endpoint.view is not None:
            return await run_in_threadpool(
                self._view, endpoint, parameters, request.query_params.get(AT.name)
            )
        if endpoint.stream is not None:
            return await endpoint.stream(parameters, request.headers.get(LAST_EVENT_ID))
        assert endpoint.command is not None
        key = request.headers.get(IDEMPOTENCY_KEY)
        if key is not None and _KEY.fullmatch(key) is None:
            raise BadRequest(f"{IDEMPOTENCY_KEY} has 1 to 128 printable characters without spaces.")
        use_traceparent(request.headers.get(TRACEPARENT))
        if endpoint.takes_file:
            return await self._receive_file(endpoint, request, parameters, key)
        body = await self._read_body(endpoint, request) if endpoint.body is not None else None
        answer: Answer = await run_in_threadpool(endpoint.command, parameters, body, key)
        return _response(answer.body, answer.status, answer.offset)

    async def _receive_file(
        self, endpoint: Endpoint, request: Request, parameters: Mapping[str, Any], key: str | None
    ) -> Response:
        assert endpoint.command is not None
        if self._uploads.locked():
            raise Unavailable(
                f"The server receives {MAX_UPLOADS} files already: try again.",
                {"Retry-After": "5", "Connection": "close"},
            )
        async with self._uploads:
            file = await read_file(request, self._settings.max_content_length)
            try:
                answer: Answer = await run_in_threadpool(endpoint.command, parameters, file, key)
            finally:
                file.close()
        return _response(answer.body, answer.status, answer.offset)

    def _view(self, endpoint: Endpoint, parameters: Mapping[str, Any], at: str | None) -> Response:
        assert endpoint.view is not None
        is_live = at is None and endpoint.is_live
        with self._read_live(parameters) if is_live else self._read(at, parameters) as moment:
            value = endpoint.view(moment, parameters)
            return _response(value, endpoint.status, moment.offset, moment.lag)

    async def _find_principal(self, request: Request) -> Principal:
        if self._settings.authenticator is None:
            return ANONYMOUS
        subject = request.scope.get("state", {}).get(CERTIFICATE_SUBJECT)
        return await self._settings.authenticator.authenticate(request.headers.get("Authorization"), subject)

    async def _read_body(self, endpoint: Endpoint, request: Request) -> Any:
        limit = min(self._settings.max_content_length, MAX_JSON_BYTES)
        too_large = TooLarge(f"The body is larger than {limit:,} bytes.", {"Connection": "close"})
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


def _check_connection(state: MutableMapping[str, Any]) -> None:
    if state.get(IS_SURPLUS):
        raise Unavailable(
            "The server has as many connections as it serves at once (rest.max-connections).",
            {"Retry-After": "1", "Connection": "close"},
        )


def _path(request: Request) -> str:
    """Returns the path for a message. `request.url` would read the header Host, which may be malformed."""
    return str(request.scope["path"])[:200]


def _response(value: Any, status: int, offset: int | None, lag: int | None = None) -> Response:
    known = {"Tailrace-Offset": offset, "Tailrace-Lag": lag}
    headers = {name: str(number) for name, number in known.items() if number is not None}
    if isinstance(value, Text):
        return Response(value.text, status, headers | dict(value.headers), media_type="text/plain")
    # As every output for people: reasons, stack traces and options may have a URL with a password.
    return Response(redacted(msgspec.json.encode(value).decode()), status, headers, _JSON)


def _error_response(error: RestError) -> Response:
    body = redacted(msgspec.json.encode(ErrorBody([error.message])).decode())
    return Response(body, error.status, dict(error.headers), _JSON)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """A path that does not exist, or not with this method: Flink answers 404 for both."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = _path(request)
    if status == 405:
        return _error_response(NotFound(f"Not found: {path}"))
    return _error_response(NotFound(f"Unable to load requested file {path}."))
