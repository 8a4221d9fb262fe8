"""Keeps pages of other sites from using the server with the rights of their visitors.

Every response has headers that tell browsers so. A request that changes something must not come from a page of another
site, and a server without authentication is asked by its own name only.
"""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..diagnostics.logs import NEXT_HEADER, OFFSET_HEADER
from .errors import Forbidden
from .openapi import IDEMPOTENCY_KEY

_EVERY_ORIGIN: Final = "*"
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
}
"""Of every response. A page of the server loads nothing from elsewhere, and no other page shows it in a frame."""


def create_middleware(allowed_origin: str | None) -> list[Middleware]:
    """Returns what adds headers to responses. `allowed_origin`: of pages that may use the API beside the server's own;
    None: there are none."""
    found = [Middleware(_SecurityHeaders)]
    if allowed_origin is not None:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=[allowed_origin],
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", IDEMPOTENCY_KEY],
            expose_headers=["Tailrace-Offset", "Tailrace-Lag", OFFSET_HEADER, NEXT_HEADER, "Retry-After"],
        )
        found.append(cors)
    return found


class _SecurityHeaders:
    """Adds headers to every response, unless it has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def check_host(request: Request, known: str | None) -> None:
    """Raises Forbidden unless the request names the server by an address, by localhost or by the `known` name. The name
    of another site may lead a browser to this machine, with a page of that site (DNS rebinding)."""
    name = _host_name(f"//{request.headers.get('Host', '')}")
    if name not in ("localhost", known) and not _is_ip_address(name):
        raise Forbidden(
            f"The request is for the host {name[:80]!r}: without authentication, name the server by its address, "
            "by localhost or by rest.address."
        )


def check_origin(request: Request, allowed_origin: str | None) -> None:
    """Raises Forbidden for a request from a page of another site, unless its origin is allowed by name."""
    origin = request.headers.get("Origin")
    if origin is not None and origin == allowed_origin != _EVERY_ORIGIN:
        return
    # A GET of an image or a link has no Origin. Browsers name the relation of the sites (Fetch Metadata) at https and
    # at loopback addresses; elsewhere a request has a token, which a page of another site has not.
    is_foreign = request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
    if is_foreign or (origin is not None and origin.partition("://")[2] != request.headers.get("Host")):
        raise Forbidden("The request comes from a page of another site.")


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_ip_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
