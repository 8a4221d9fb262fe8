"""Fingerprints that define which snapshots and hashes are comparable.

Two releases with the same types of states read each other's snapshots as they are: fields, their order, types and
defaults, recursively. Other snapshots are migrated (migration.py). The value of a state also depends on all code that
folds: hashes carry the fingerprint of the code, and are compared between replicas that run the same code.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .encoding import state_types
from .type_description import describe

_FORMAT = 1
"""Increase it whenever `encoding` writes the same types differently."""
_ROOT = Path(__file__).parents[2]
_FOLD_PACKAGES = ("services", "schemas", "pipelines/graph", "pipelines/checkpoint")
"""The folders of the code on which states depend; including unrelated files does no harm."""


@functools.cache
def schema_fingerprint() -> str:
    """Returns 8 bytes in hexadecimal: the fingerprint of all state types and their encoding."""
    return fingerprint_types(state_types())


def fingerprint_types(states: Mapping[str, Any]) -> str:
    """Like `schema_fingerprint`, for any types by kind."""
    described = msgspec.msgpack.encode((_FORMAT, describe(states)), order="deterministic")
    return hashlib.blake2b(described, digest_size=8).hexdigest()


@functools.cache
def code_fingerprint() -> str:
    """Returns 8 bytes in hexadecimal: the fingerprint of the sources that fold, and of the Python version."""
    digest = hashlib.blake2b(schema_fingerprint().encode(), digest_size=8)
    digest.update(repr(sys.version_info[:3]).encode())
    for name, source in _sources():
        digest.update(b"%d\0%b\0%d\0%b" % (len(name), name.encode(), len(source), source))
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    for folder in _FOLD_PACKAGES:
        for path in sorted((_ROOT / folder).rglob("*.py")):
            yield path.relative_to(_ROOT).as_posix(), path.read_bytes()
