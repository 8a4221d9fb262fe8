"""What can be wrong with a blob: each error is one line that names it."""

from __future__ import annotations


class BlobError(Exception):
    """Of them all."""


class BlobNotFound(BlobError):
    """Whoever was asked has no such blob."""


class BlobRefused(BlobError):
    """The blob, or what was asked for, can't be: it is too large, its bytes are others, the request makes no sense."""


class BlobUnavailable(BlobError):
    """A server or storage can't be reached, or could not do what it was asked for: another time it may."""
