"""The errors of a request: a status of HTTP and one sentence. The body is Flink's ErrorResponseBody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every answer with a status of 400 or more."""

    errors: Sequence[str]


class RestError(Exception):
    """A request that is answered with an error."""

    status: ClassVar[int] = 500

    def __init__(self, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.message = message
        self.headers = headers or {}
        super().__init__(message)


class BadRequest(RestError):
    """The request is malformed."""

    status = 400


class Unauthorized(RestError):
    """The request has no valid token or certificate."""

    status = 401


class Forbidden(RestError):
    """The principal may not do this, or the request comes from a page of another site."""

    status = 403


class NotFound(RestError):
    """There is no such thing, or no such path."""

    status = 404


class MethodNotAllowed(RestError):
    """The server only reads."""

    status = 405


class RequestTimeout(RestError):
    """The client sends its body too slowly."""

    status = 408


class Conflict(RestError):
    """The state of the cluster does not allow the request."""

    status = 409


class TooLarge(RestError):
    """The body is larger than allowed."""

    status = 413


class TooManyRequests(RestError):
    """The principal sends more requests than allowed. It may try again later."""

    status = 429


class NotSupported(RestError):
    """Flink has this endpoint, and tailrace does not."""

    status = 501


class Unavailable(RestError):
    """Kafka or the leader does not answer. The client may try again."""

    status = 503
