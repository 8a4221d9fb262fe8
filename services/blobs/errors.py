"""Errors of blobs: each is one line that names the blob."""

from __future__ import annotations


class BlobError(Exception):
    """The base class."""


class BlobNotFound(BlobError):
    """The server or store has no such blob."""


class BlobRefused(BlobError):
    """The blob or the request is invalid: too large, wrong content, or a malformed request."""


class BlobUnavailable(BlobError):
    """A server or storage is unreachable or failed; a retry may succeed."""
