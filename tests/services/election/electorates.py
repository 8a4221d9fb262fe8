"""The services that elect masters, behind one interface: what the laws of an election need of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

import msgspec
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kubernetes_api import KubernetesApi

from tailrace.infra.zookeeper import EmbeddedZooKeeper
from tailrace.services.election.candidates import CandidatesReader
from tailrace.services.election.kubernetes_candidates import KubernetesCandidatesReader
from tailrace.services.election.kubernetes_settings import KubernetesElectionSettings
from tailrace.services.election.leader_information import LeaderInformation, decode
from tailrace.services.election.lease_record import (
    LEADER_ANNOTATION,
    epoch_of,
    holder_of,
    leader_lease_name,
)
from tailrace.services.election.paths import Paths, in_order
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_candidates import ZooKeeperCandidatesReader

from ...fault_injection.network_link import NetworkLink
from .masters import ROLE, Candidacy, KubernetesMaster, Master, OtherMaster, onlooker


class Electorate(Protocol):
    """One cluster's election. Its masters are closed at the end."""

    def master(self, *, term_s: float = 30.0, link: NetworkLink | None = None) -> Candidacy:
        """Returns a new master, which has not joined. A leader that fails is replaced after `term_s`."""
        ...

    def other_process(self, name: str, *, term_s: float = 30.0) -> OtherMaster:
        """Returns a master in a process of its own."""
        ...

    def link(self) -> NetworkLink:
        """Returns a new link to the service."""
        ...

    def epoch(self) -> int | None:
        """The epoch of the leader according to the service."""
        ...

    def published(self) -> LeaderInformation | None:
        """What the leader has published."""
        ...

    def depose(self) -> None:
        """Deletes what makes the leader the leader, as a person may do."""
        ...

    def candidates(self) -> list[str]:
        """The addresses of the candidates, the leader first."""
        ...


class ZooKeeperElectorate:
    """Nodes in a ZooKeeper."""

    def __init__(self, zookeeper: EmbeddedZooKeeper, settings: ZooKeeperSettings, kazoo: KazooClient) -> None:
        self._zookeeper = zookeeper
        self._settings = settings
        self._kazoo = kazoo
        self._paths = Paths.from_settings(settings)
        self.made: list[Candidacy] = []

    def master(self, *, term_s: float = 30.0, link: NetworkLink | None = None) -> Candidacy:
        settings = msgspec.structs.replace(
            self._settings, session_timeout_s=term_s, connection_timeout_s=min(2.0, term_s / 2)
        )
        if link is not None:
            settings = msgspec.structs.replace(settings, quorum=link.address)
        self.made.append(Master(settings, f"host:{len(self.made) + 1}"))
        return self.made[-1]

    def other_process(self, name: str, *, term_s: float = 30.0) -> OtherMaster:
        return OtherMaster(msgspec.structs.replace(self._settings, session_timeout_s=term_s), name)

    def link(self) -> NetworkLink:
        return NetworkLink(self._zookeeper.connect_string)

    def epoch(self) -> int | None:
        first = self._first()
        return None if first is None else first[1]

    def published(self) -> LeaderInformation | None:
        try:
            return decode(self._kazoo.get(self._paths.leader(ROLE))[0])
        except NoNodeError:
            return None

    def depose(self) -> None:
        first = self._first()
        assert first is not None
        self._kazoo.delete(first[0])

    def candidates(self) -> list[str]:
        return _read(ZooKeeperCandidatesReader(self._settings))

    def _first(self) -> tuple[str, int] | None:
        with contextlib.suppress(NoNodeError):
            for node in in_order(self._kazoo.get_children(self._paths.latch)):
                path = f"{self._paths.latch}/{node}"
                stat = self._kazoo.exists(path)
                if stat is not None:
                    return path, int(stat.czxid)
        return None


class KubernetesElectorate:
    """Leases at an API server."""

    def __init__(self, api: KubernetesApi, settings: KubernetesElectionSettings) -> None:
        self._api = api
        self._settings = settings
        self._name = leader_lease_name(settings.cluster_id)
        self.made: list[Candidacy] = []

    def master(self, *, term_s: float = 30.0, link: NetworkLink | None = None) -> Candidacy:
        settings = self._with(term_s)
        if link is not None:
            place = msgspec.structs.replace(
                settings.place, config_file=str(self._api.write_config(link.address))
            )
            settings = msgspec.structs.replace(settings, place=place)
        self.made.append(KubernetesMaster(settings, f"host:{len(self.made) + 1}"))
        return self.made[-1]

    def other_process(self, name: str, *, term_s: float = 30.0) -> OtherMaster:
        return OtherMaster(self._with(term_s), name)

    def link(self) -> NetworkLink:
        return NetworkLink(self._api.address)

    def epoch(self) -> int | None:
        lease = self._api.leases().get(self._name)
        return epoch_of(lease) if lease is not None and holder_of(lease) else None

    def published(self) -> LeaderInformation | None:
        lease = self._api.leases().get(self._name, {"metadata": {}})
        text = (lease["metadata"].get("annotations") or {}).get(LEADER_ANNOTATION, "")
        return decode(text.encode())

    def depose(self) -> None:
        self._api.delete_lease(self._name)

    def candidates(self) -> list[str]:
        return _read(KubernetesCandidatesReader(self._settings))

    def _with(self, term_s: float) -> KubernetesElectionSettings:
        return msgspec.structs.replace(self._settings, duration_s=round(term_s))


@contextlib.contextmanager
def zookeeper_electorate(
    zookeeper: EmbeddedZooKeeper, settings: ZooKeeperSettings
) -> Iterator[ZooKeeperElectorate]:
    with onlooker(settings) as kazoo:
        electorate = ZooKeeperElectorate(zookeeper, settings, kazoo)
        try:
            yield electorate
        finally:
            for master in electorate.made:
                master.close()


@contextlib.contextmanager
def kubernetes_electorate(
    api: KubernetesApi, settings: KubernetesElectionSettings
) -> Iterator[KubernetesElectorate]:
    electorate = KubernetesElectorate(api, settings)
    try:
        yield electorate
    finally:
        for master in electorate.made:
            master.close()


def _read(reader: CandidatesReader) -> list[str]:
    with reader:
        return reader.candidates()
