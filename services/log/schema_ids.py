"""A file with the ids that a schema registry gave to this release's schemas.

With the file a process that starts while the registry is away reads and writes as before. An id never changes its
schema; the file records the schema's fingerprint and the registry, so its content stays valid.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "schema-ids.json"


class SchemaIds:
    """Ids by subject and schema, for one registry; safe for use by several threads. Without a file: in memory."""

    def __init__(self, registry_url: str, home: Path | None = None) -> None:
        self._url = registry_url
        self._path = None if home is None else home / _FILE
        self._lock = threading.Lock()
        self._ids = dict(self._read().get(registry_url, {}))

    def get(self, subject: str, fingerprint: bytes) -> int | None:
        """The id of a schema; None where it is not known."""
        return self._ids.get(_key(subject, fingerprint))

    def put(self, subject: str, fingerprint: bytes, schema_id: int) -> None:
        """Remembers an id. A file that can't be written is no reason to fail."""
        with self._lock:
            self._ids[_key(subject, fingerprint)] = schema_id
            if self._path is None:
                return
            # Other processes of this home write it too.
            known = {**self._read(), self._url: {**self._read().get(self._url, {}), **self._ids}}
            new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            with contextlib.suppress(OSError):
                new.write_bytes(msgspec.json.encode(known))
                new.replace(self._path)

    def _read(self) -> Mapping[str, Mapping[str, int]]:
        if self._path is None:
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, dict[str, int]])
        except (OSError, msgspec.MsgspecError):
            return {}


def _key(subject: str, fingerprint: bytes) -> str:
    return f"{subject} {fingerprint.hex()}"
