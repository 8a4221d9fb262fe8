"""Reads the candidates of a cluster, the leader included."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from ...infra.closing import Closeable
from ...schemas.feature_level import FIRST_LEVEL
from .client import UNSETTLED, Client
from .paths import Paths, in_order
from .settings import ZooKeeperSettings


class Candidate(NamedTuple):
    """A live master: its address (host:pid), and the highest feature level that it knows."""

    address: str
    feature_level: int

    def encode(self) -> bytes:
        """Returns the content of a candidate's node."""
        return f"{self.address} {self.feature_level}".encode()

    @classmethod
    def decode(cls, content: bytes) -> Candidate:
        """Reads a candidate's node; a node of anything else knows the first level."""
        address, _, level = content.decode("utf-8", "replace").rpartition(" ")
        return cls(address, int(level)) if address and level.isdecimal() else cls(level, FIRST_LEVEL)


class ZooKeeperUnreachable(Exception):
    """ZooKeeper did not answer; the message says why."""


class CandidatesReader(Closeable):
    """A reader with its own connection, as a context manager."""

    def __init__(self, settings: ZooKeeperSettings, *, timeout_s: float = 10.0) -> None:
        """Connects. Raises ZooKeeperUnreachable, ConfigurationError."""
        self._path = Paths.from_settings(settings).latch
        self._client = Client(settings, "candidates")
        try:
            self._client.start(timeout=timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            complaint = self._client.complaints.text or repr(error)
            self._client.discard()
            raise ZooKeeperUnreachable(
                f"ZooKeeper at {settings.quorum} did not list the candidates of {settings.cluster_path}: {complaint}"
            ) from None

    def candidates(self) -> list[str]:
        """Returns the addresses (host:pid) of the candidates, the leader first; those that were read if ZooKeeper stops
        answering."""
        return [candidate.address for candidate in self.read()]

    def read(self) -> list[Candidate]:
        """Like `candidates`, with the levels."""
        found = []
        with contextlib.suppress(NoNodeError, *UNSETTLED):
            for node in in_order(self._client.get_children(self._path)):
                with contextlib.suppress(NoNodeError):
                    content, _ = self._client.get(f"{self._path}/{node}")
                    found.append(Candidate.decode(content))
        return found

    def close(self) -> None:
        self._client.discard()
