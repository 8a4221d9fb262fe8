"""A snapshot as a file.

    magic (8 bytes) | length of the header (4, big-endian) | header (JSON) | body (zlib) | SHA-256 of all before (32)

The body holds the Leadership and each address's state, each encoded by itself, so that a process reads no more of them
than it serves. The SHA-256 tells what is torn or damaged; the header says whose snapshot it is and what fits it. zlib
and not zstd: what reads zstd takes longer to import than a snapshot of 100,000 states takes to read.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..core.role import DISPATCHER
from .encoding import LEADERSHIP, decode, encode
from .state_hash import combine_hashes, digest, hash_all

_MAGIC = b"TAILSNAP"
_VERSION = 1
_LENGTH = 4
_SUM = hashlib.sha256().digest_size
_LEVEL = 3


class UnusableSnapshot(Exception):
    """A file that is no snapshot to begin with; the message says why, in one line without its name."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot says of itself."""

    version: int = _VERSION
    cluster: str
    offset: int
    """Of the last event that is in it; all before are in it too."""
    event_id: str
    """Of that event: another log has another one there."""
    fingerprint: str
    """Of the types of the states."""
    state_hash: str
    """Of all that is in it."""
    time: int
    """That of its last event, in microseconds since the epoch."""


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot that was read; states are still bytes."""

    header: Header
    leadership: bytes
    states: dict[str, bytes]

    def restore(self, replica: Replica) -> None:
        """Puts the replica, in which nothing was folded yet, where the snapshot was taken. Raises UnusableSnapshot."""
        leadership = self.read_leadership()
        try:
            states = {
                each: decode(replica.role(each).kind, data)
                for each, data in self.states.items()
                if replica.serves(each)
            }
        except msgspec.MsgspecError as error:
            raise UnusableSnapshot(f"a state in it can't be read: {error}") from error
        replica.restore(states, leadership, self.header.offset)

    def read_leadership(self) -> LeadershipState:
        """Who leads what. Raises UnusableSnapshot."""
        try:
            found: LeadershipState = decode(LEADERSHIP, self.leadership)
        except msgspec.MsgspecError as error:
            raise UnusableSnapshot(f"who leads can't be read: {error}") from error
        return found

    def read_configuration(self) -> Mapping[str, str]:
        """What the last ConfigurationChanged said; empty before the first. Raises UnusableSnapshot."""
        data = self.states.get(DISPATCHER)
        try:
            found = (
                None if data is None else msgspec.msgpack.decode(data, type=_ConfigurationView).configuration
            )
        except msgspec.MsgspecError as error:
            raise UnusableSnapshot(f"the cluster's configuration can't be read: {error}") from error
        return found or {}


class _ConfigurationView(msgspec.Struct, frozen=True):
    """Of a DispatcherState what clients ask for: they are spared the import of its other types."""

    configuration: Mapping[str, str] | None = None


class _Body(msgspec.Struct, frozen=True, array_like=True):
    leadership: bytes
    states: dict[str, bytes]


def pack(replica: Replica, **about: Any) -> tuple[Header, bytes]:
    """The snapshot of a replica: header and file. `about` is what the header says beside offset and hash."""
    leadership = encode(replica.leadership)
    states = {each: encode(replica.states[each]) for each in sorted(replica.states)}
    header = Header(offset=replica.offset, state_hash=hash_all(read_hashes(leadership, states)), **about)
    head = msgspec.json.encode(header)
    body = zlib.compress(msgspec.msgpack.encode(_Body(leadership, states)), _LEVEL)
    data = b"".join((_MAGIC, len(head).to_bytes(_LENGTH, "big"), head, body))
    return header, data + hashlib.sha256(data).digest()


def read_hashes(leadership: bytes, states: Mapping[str, bytes]) -> dict[str, str]:
    """Kind -> hash, of bytes."""
    digests = [(each, digest(data)) for each, data in states.items()]
    return combine_hashes([*digests, (LEADERSHIP, digest(leadership))])


def read_header(data: bytes, *, cluster: str) -> Header:
    """What a file says of itself, of whatever types of states. Raises UnusableSnapshot for what is torn or foreign."""
    start = len(_MAGIC) + _LENGTH
    if data[: len(_MAGIC)] != _MAGIC:
        raise UnusableSnapshot("it is no snapshot" if data else "it is empty")
    if len(data) < start + _SUM or hashlib.sha256(memoryview(data)[:-_SUM]).digest() != data[-_SUM:]:
        raise UnusableSnapshot("it is torn or damaged: its SHA-256 is not that of its bytes")
    head = data[start : _body_start(data)]
    try:
        version = msgspec.json.decode(head, type=dict[str, Any]).get("version")
        if version != _VERSION:
            raise UnusableSnapshot(f"its format is version {version}; this release reads version {_VERSION}")
        header = msgspec.json.decode(head, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnusableSnapshot(f"it can't be read: {error}") from error
    if header.cluster != cluster:
        raise UnusableSnapshot(f"it is of cluster {header.cluster[:80]!r}")
    return header


def unpack(data: bytes, *, cluster: str, fingerprint: str) -> Snapshot:
    """What a file holds. Raises UnusableSnapshot for what is torn, foreign, or does not fit this code."""
    header = read_header(data, cluster=cluster)
    if header.fingerprint != fingerprint:
        raise UnusableSnapshot(
            f"it was written with other types of states (fingerprint {header.fingerprint[:80]}, not {fingerprint})"
        )
    try:
        body = msgspec.msgpack.decode(zlib.decompress(data[_body_start(data) : -_SUM]), type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as error:
        raise UnusableSnapshot(f"it can't be read: {error}") from error
    return Snapshot(header, body.leadership, body.states)


def _body_start(data: bytes) -> int:
    start = len(_MAGIC) + _LENGTH
    return start + int.from_bytes(data[len(_MAGIC) : start], "big")
