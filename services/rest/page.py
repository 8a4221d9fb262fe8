"""tailrace's web page: the files of services/web/static, at / and /assets.

Files of /assets have the hash of their content in their names, so browsers may keep them for ever; the page itself is
checked at each visit. The Content-Security-Policy allows nothing from another host, and no inline script or style.
The files have no data of the cluster, so they need no token: the page asks its user for one.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Vary": "Accept-Encoding",
}
"""Beside those of every response (browser_security.py), of which the policy is replaced by a stricter one."""
_FOR_EVER = "public, max-age=31536000, immutable"
_INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes
    media_type: str
    tag: str


def create_routes() -> Sequence[BaseRoute]:
    """Returns the routes of the page."""
    return (Route("/", _get_page), Route("/assets/{name}", _get_asset))


async def _get_page(request: Request) -> Response:
    return _answer(request, _read_files()[_INDEX], "no-cache")


async def _get_asset(request: Request) -> Response:
    found = _read_files().get("assets/" + request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    return _answer(request, found, _FOR_EVER)


def _answer(request: Request, file: _File, cache_control: str) -> Response:
    headers = {**_HEADERS, "Cache-Control": cache_control, "ETag": file.tag}
    if request.headers.get("If-None-Match") == file.tag:
        return Response(None, 304, headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(
            file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type
        )
    return Response(file.content, headers=headers, media_type=file.media_type)


@functools.cache
def _read_files() -> Mapping[str, _File]:
    """Returns the files by their paths; read when the first browser comes."""
    root = resources.files("tailrace") / "services" / "web" / "static"
    return {
        path: _read(file)
        for directory, prefix in ((root, ""), (root / "assets", "assets/"))
        for file in directory.iterdir()
        if file.is_file()
        for path in [prefix + file.name]
    }


def _read(file: Traversable) -> _File:
    content = file.read_bytes()
    media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return _File(
        content,
        gzip.compress(content, mtime=0),
        media_type,
        f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )
