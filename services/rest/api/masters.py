"""The jobmanagers that stand for election: GET /api/v1/masters. ZooKeeper knows them, and the log does not.

They are those of now, whatever `at` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ...configuration import Configuration, ConfigurationError
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...election.candidates_reader import Candidate, CandidatesReader, ZooKeeperUnreachable
from ...election.settings import ZooKeeperSettings
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
    if configuration.get(HIGH_AVAILABILITY) is HighAvailability.NONE:
        return []
    try:
        settings = ZooKeeperSettings.from_configuration(configuration)
        with CandidatesReader(settings, timeout_s=_TIMEOUT_S) as reader:
            return reader.read()
    except (ConfigurationError, ZooKeeperUnreachable) as error:
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
