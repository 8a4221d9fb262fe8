"""The address that a leader publishes under `/leader/...` (Flink's LeaderInformation).

It is only a hint. Who leads, and since which offset, is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class LeaderInformation(msgspec.Struct, frozen=True):
    """`address` is for people (host:pid), `session_id` unique to the leader's process (LeaderElected.session),
    `endpoints` the servers of the process: name -> host:port, such as blob. A JSON object in ZooKeeper.
    """

    address: str
    session_id: str
    epoch: int = 0
    endpoints: Mapping[str, str] = {}


def encode(information: LeaderInformation) -> bytes:
    """The content of a leader's node."""
    return msgspec.json.encode(information)


def decode(content: bytes) -> LeaderInformation | None:
    """The opposite; None for what is none, such as a node of another system."""
    try:
        return msgspec.json.decode(content, type=LeaderInformation)
    except msgspec.DecodeError:
        return None
