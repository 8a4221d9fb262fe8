"""The jobmanagers that stand for election: GET /api/v1/masters. The election service
(ZooKeeper, Kubernetes) knows them, and the log does not.

They are those of now, whatever `at` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ...configuration import Configuration, ConfigurationError
from ...election.candidates import Candidate, ElectionUnreachable
from ...election.factory import open_candidates_reader
from ..cached_value import CachedValue
from ..endpoint import Answer, Endpoint, Parameters
from ..errors import Unavailable

_TIMEOUT_S = 5.0


class Master(msgspec.Struct, frozen=True):
    """A jobmanager that stands for election: host:pid, and the highest feature level that it knows."""

    process: str
    feature_level: int


class MasterList(msgspec.Struct, frozen=True):
    """/api/v1/masters: the leader first; without elections there are none."""

    masters: Sequence[Master]


def read_candidates(configuration: Configuration) -> list[Candidate]:
    """Returns the candidates. Raises Unavailable."""
    try:
        reader = open_candidates_reader(configuration, timeout_s=_TIMEOUT_S)
        if reader is None:
            return []
        with reader:
            return reader.read()
    except (ConfigurationError, ElectionUnreachable) as error:
        raise Unavailable(f"{error}.", {"Retry-After": "5"}) from None


def create_endpoint(read: Callable[[], Sequence[Candidate]]) -> Endpoint:
    """Returns the endpoint. `read` returns the candidates."""

    def read_list() -> MasterList:
        return MasterList([Master(each.address, each.feature_level) for each in read()])

    candidates = CachedValue(read_list)

    def masters(_parameters: Parameters, _body: object, _key: str | None) -> Answer:
        """GET /masters: the jobmanagers that stand for election, the leader first"""
        return Answer(candidates.get(), 200)

    return Endpoint("GET", "/masters", command=masters, response=MasterList)
