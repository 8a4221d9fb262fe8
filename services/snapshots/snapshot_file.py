"""The file format of a snapshot.

    magic (8 bytes) | length of the header (4, big-endian) | header (JSON) | body (zlib) | SHA-256 of all before (32)

The body holds the leadership and each address's state, encoded separately, so that a process decodes only the states
that it serves, and the types of all states, by which a later release reads them (migration.py). The SHA-256 detects
damaged files; the header names the cluster and the fingerprint of the types. The compression is zlib, not zstd:
importing a zstd module takes longer than reading a snapshot of 100,000 states.
"""

from __future__ import annotations

import functools
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ...infra.version import __version__
from ..core.leadership import LeadershipState
from ..core.replica import Replica
from ..core.role import DISPATCHER
from .encoding import LEADERSHIP, decode, encode, state_types
from .migration import MissingMigration, StateMigration
from .migrations import MIGRATIONS
from .state_hash import combine_hashes, digest, digest_state, hash_all
from .type_description import StateTypes, describe

_MAGIC = b"TAILSNAP"
_VERSION = 1
_LENGTH = 4
_SUM = hashlib.sha256().digest_size
_LEVEL = 3


class UnusableSnapshot(Exception):
    """The file is not a usable snapshot; the message gives the reason in one line without the file's name."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a snapshot."""

    version: int = _VERSION
    cluster: str
    log_id: str = ""
    """The id of the log (log_identity.py); empty if its first event was not readable."""
    offset: int
    """The offset of the last event in it; all earlier events are in it too."""
    event_id: str
    """The id of that event; another log has another one there."""
    fingerprint: str
    """The fingerprint of the state types."""
    state_hash: str
    """The hash of all states."""
    time: int
    """The time of its last event, in microseconds since the epoch."""
    release: str = __version__
    """The release that wrote it."""
    migrations: int = len(MIGRATIONS)
    """The number of steps (migrations.py) that the release knew."""


class Snapshot(msgspec.Struct, frozen=True):
    """A decoded snapshot; its states are still bytes."""

    header: Header
    leadership: bytes
    states: dict[str, bytes]
    migration: StateMigration | None = None
    """How to read its states, if their types are not those of this release."""

    def restore(self, replica: Replica) -> None:
        """Restores an empty replica to this snapshot. Raises UnusableSnapshot, UnknownFeatureLevel."""
        leadership = self.read_leadership()
        leadership.check_level(self.header.offset)
        try:
            states = {
                role_address: self._decode(replica.role(role_address).kind, data)
                for role_address, data in self.states.items()
                if replica.serves(role_address)
            }
        except msgspec.MsgspecError as error:
            raise UnusableSnapshot(f"a state in it cannot be read: {error}") from error
        replica.restore(states, leadership, self.header.offset)

    def _decode(self, kind: str, data: bytes) -> Any:
        return decode(kind, data if self.migration is None else self.migration.apply(kind, data))

    def read_leadership(self) -> LeadershipState:
        """Returns the leadership. Raises UnusableSnapshot."""
        try:
            found: LeadershipState = self._decode(LEADERSHIP, self.leadership)
        except msgspec.MsgspecError as error:
            raise UnusableSnapshot(f"the leadership cannot be read: {error}") from error
        return found

    def read_configuration(self) -> Mapping[str, str]:
        """Returns the map of the last ConfigurationChanged; empty before the first. Raises UnusableSnapshot."""
        data = self.states.get(DISPATCHER)
        try:
            found = (
                None if data is None else msgspec.msgpack.decode(data, type=_ConfigurationView).configuration
            )
        except msgspec.MsgspecError as error:
            raise UnusableSnapshot(f"the cluster's configuration can't be read: {error}") from error
        return found or {}


class _ConfigurationView(msgspec.Struct, frozen=True):
    """The part of a DispatcherState that clients read, so that they need not import its other types."""

    configuration: Mapping[str, str] | None = None


class _Body(msgspec.Struct, frozen=True, array_like=True):
    leadership: bytes
    states: dict[str, bytes]
    types: StateTypes = StateTypes()


def pack(replica: Replica, **about: Any) -> tuple[Header, bytes]:
    """Creates the snapshot of a replica: header and file. `about` are the further fields of the header."""
    leadership = encode(replica.leadership)
    states = {role_address: encode(replica.states[role_address]) for role_address in sorted(replica.states)}
    digests = [(each, digest_state(each, replica.states[each], data)) for each, data in states.items()]
    hashes = combine_hashes([*digests, (LEADERSHIP, digest(leadership))])
    header = Header(offset=replica.offset, state_hash=hash_all(hashes), **about)
    head = msgspec.json.encode(header)
    body = zlib.compress(msgspec.msgpack.encode(_Body(leadership, states, own_types())), _LEVEL)
    data = b"".join((_MAGIC, len(head).to_bytes(_LENGTH, "big"), head, body))
    return header, data + hashlib.sha256(data).digest()


def read_header(data: bytes, *, cluster: str) -> Header:
    """Reads the header of a file, whatever its state types. Raises UnusableSnapshot for a damaged or foreign file."""
    start = len(_MAGIC) + _LENGTH
    if data[: len(_MAGIC)] != _MAGIC:
        raise UnusableSnapshot("it is no snapshot" if data else "it is empty")
    if len(data) < start + _SUM or hashlib.sha256(memoryview(data)[:-_SUM]).digest() != data[-_SUM:]:
        raise UnusableSnapshot("it is truncated or damaged: its SHA-256 does not match its bytes")
    head = data[start : _body_start(data)]
    try:
        version = msgspec.json.decode(head, type=dict[str, Any]).get("version")
        if version != _VERSION:
            raise UnusableSnapshot(f"its format is version {version}; this release reads version {_VERSION}")
        header = msgspec.json.decode(head, type=Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnusableSnapshot(f"it can't be read: {error}") from error
    if header.cluster != cluster:
        raise UnusableSnapshot(f"it belongs to cluster {header.cluster[:80]!r}")
    return header


def unpack(data: bytes, *, cluster: str, fingerprint: str) -> Snapshot:
    """Reads a file. `fingerprint`: of the state types of this release. Raises UnusableSnapshot for a file that is
    damaged or foreign, or whose states this release cannot read."""
    header = read_header(data, cluster=cluster)
    try:
        body = msgspec.msgpack.decode(zlib.decompress(data[_body_start(data) : -_SUM]), type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as error:
        raise UnusableSnapshot(f"it can't be read: {error}") from error
    if header.fingerprint == fingerprint:
        return Snapshot(header, body.leadership, body.states)
    if header.migrations > len(MIGRATIONS):
        raise UnusableSnapshot(f"release {header.release[:80]} wrote it, which is newer than {__version__}")
    try:
        migration = StateMigration(body.types, own_types(), MIGRATIONS[max(0, header.migrations) :])
    except MissingMigration as error:
        raise UnusableSnapshot(
            f"release {header.release[:80]} wrote it with other types of states, and {__version__} has no step to read "
            f"them: {error}"
        ) from error
    return Snapshot(header, body.leadership, body.states, migration)


@functools.cache
def own_types() -> StateTypes:
    """Returns the types of states of this release."""
    return describe(state_types())


def _body_start(data: bytes) -> int:
    start = len(_MAGIC) + _LENGTH
    return start + int.from_bytes(data[len(_MAGIC) : start], "big")
