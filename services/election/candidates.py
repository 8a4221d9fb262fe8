"""The candidates of a cluster's election, the leader included, and how they are read."""

from __future__ import annotations

from typing import NamedTuple

from ...infra.closing import Closeable
from ...schemas.feature_level import FIRST_LEVEL


class Candidate(NamedTuple):
    """A live master: its address (host:pid), and the highest feature level that it knows."""

    address: str
    feature_level: int

    def encode(self) -> bytes:
        """Returns the content of a candidate's node in ZooKeeper."""
        return f"{self.address} {self.feature_level}".encode()

    @classmethod
    def decode(cls, content: bytes) -> Candidate:
        """Reads a candidate's node; a node of anything else knows the first level."""
        address, _, level = content.decode("utf-8", "replace").rpartition(" ")
        return cls(address, int(level)) if address and level.isdecimal() else cls(level, FIRST_LEVEL)


class ElectionUnreachable(Exception):
    """The service that elects leaders did not answer; the message says why."""


class CandidatesReader(Closeable):
    """A reader with its own connection, as a context manager."""

    def read(self) -> list[Candidate]:
        """Returns the candidates, the leader first. Raises ElectionUnreachable."""
        raise NotImplementedError

    def candidates(self) -> list[str]:
        """Like `read`, the addresses (host:pid) only."""
        return [candidate.address for candidate in self.read()]
