"""Caches the ids of this release's schemas in a registry, in a file that outlives the process.

With the cache a process that starts while the registry is unreachable reads and writes as before. The schema of an id
never changes, and the file records the schema's fingerprint and the registry, so its entries stay valid.
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
    """Ids by subject and schema, for one registry; thread-safe. Without a file: in memory only."""

    def __init__(self, registry_url: str, home: Path | None = None) -> None:
        self._url = registry_url
        self._path = None if home is None else home / _FILE
        self._lock = threading.Lock()
        self._ids = dict(self._read().get(registry_url, {}))

    def get(self, subject: str, fingerprint: bytes) -> int | None:
        """Returns the id of a schema; None if it is unknown."""
        return self._ids.get(_key(subject, fingerprint))

    def put(self, subject: str, fingerprint: bytes, schema_id: int) -> None:
        """Stores an id. An unwritable file is not an error."""
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
