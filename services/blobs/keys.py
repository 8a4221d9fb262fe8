"""Blob keys: the owner and the content's digest.

The digest identifies the content: fetched content is verified against it, whichever server sent it, and equal content
is stored once. The job id is the scope: when the job has ended, all its blobs are deleted.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from ...schemas.ids import is_id

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20


class BlobKey(msgspec.Struct, frozen=True, order=True):
    """`permanent/<job id>/<SHA-256>`.

    A blob lives as long as its job, and is in the cluster's storage with high availability (Flink's PermanentBlobKey).
    """

    digest: str
    """SHA-256 of the content, 64 lower case hexadecimal digits."""
    job_id: str

    def __post_init__(self) -> None:
        if _DIGEST.fullmatch(self.digest) is None:
            raise ValueError(f"{self.digest[:80]!r} is not a SHA-256: expected 64 hexadecimal digits")
        if not is_id(self.job_id):
            raise ValueError(
                f"{self.job_id[:80]!r} is not a job id: expected 1 to 64 letters, digits, '-' or '_'"
            )

    def __str__(self) -> str:
        return f"permanent/{self.job_id}/{self.digest}"

    @classmethod
    def parse(cls, text: str) -> BlobKey:
        """Parses a key. Raises ValueError."""
        match text.split("/"):
            case ["permanent", job_id, digest]:
                return cls(digest, job_id)
            case _:
                raise ValueError(f"{text[:160]!r} is not a blob key, such as permanent/<job id>/<SHA-256>")


def compute_digest(content: bytes) -> str:
    """Returns the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def compute_file_digest(path: str) -> tuple[str, int]:
    """Returns the SHA-256 of a file's content, in hexadecimal, and its size in bytes. Raises OSError."""
    found, size = hashlib.sha256(), 0
    buffer = memoryview(bytearray(_CHUNK))
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
            size += count
    return found.hexdigest(), size
