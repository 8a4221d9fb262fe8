"""Reads the file of a multipart request (RFC 7578) into a temporary file, up to a limit and not too slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import BinaryIO, Final

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from .errors import BadRequest, RequestTimeout, TooLarge

_START_TIMEOUT_S: Final = 20.0
_MIN_BYTES_PER_S: Final = 16 << 10
_MAX_FIELDS: Final = 8
_MAX_FIELD_BYTES: Final = 64 << 10
_CLOSE: Final = {"Connection": "close"}


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file of a request. Its name is the client's, and may be hostile."""

    name: str
    content: BinaryIO

    def close(self) -> None:
        """Deletes the temporary file."""
        self.content.close()


async def read_file(request: Request, limit: int) -> UploadedFile:
    """Returns the only file of a request. Raises BadRequest, TooLarge for a body above `limit` bytes, and
    RequestTimeout."""
    too_large = TooLarge(f"The body is larger than {limit:,} bytes (rest.server.max-content-length).", _CLOSE)
    length = request.headers.get("Content-Length", "0")
    if not length.isdecimal() or int(length) > limit:
        raise too_large
    if not request.headers.get("Content-Type", "").lower().startswith("multipart/form-data"):
        raise BadRequest("The request is not multipart/form-data with one file.", _CLOSE)
    try:
        async with asyncio.timeout(_START_TIMEOUT_S) as timeout:
            start = asyncio.get_running_loop().time()

            async def read() -> AsyncGenerator[bytes, None]:
                size = 0
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limit:
                        raise too_large
                    timeout.reschedule(start + _START_TIMEOUT_S + size / _MIN_BYTES_PER_S)
                    yield chunk

            parser = MultiPartParser(
                request.headers,
                read(),
                max_files=1,
                max_fields=_MAX_FIELDS,
                max_part_size=_MAX_FIELD_BYTES,
            )
            form = await parser.parse()
    except TimeoutError:
        raise RequestTimeout(
            f"The body arrives more slowly than {_MIN_BYTES_PER_S:,} bytes per second.", _CLOSE
        ) from None
    except MultiPartException as error:
        raise BadRequest(f"The multipart body is malformed: {error.message}", _CLOSE) from None
    for value in form.values():
        if isinstance(value, UploadFile):
            return UploadedFile(value.filename or "", value.file)
    raise BadRequest("The request has no file: give one part a filename.")
