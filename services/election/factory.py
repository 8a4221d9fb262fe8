"""Creates the leader election that `high-availability.type` names, and the reader of its candidates."""

from __future__ import annotations

from collections.abc import Iterable

from ..configuration import Configuration
from ..configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from .candidates import CandidatesReader
from .kubernetes_candidates import KubernetesCandidatesReader
from .kubernetes_leader_election import KubernetesLeaderElection
from .kubernetes_settings import KubernetesElectionSettings
from .leader_election import LeaderElection
from .leader_information import LeaderInformation
from .log_liveness import LivenessTrackingLog
from .settings import ZooKeeperSettings
from .zookeeper_candidates import ZooKeeperCandidatesReader
from .zookeeper_leader_election import ZooKeeperLeaderElection


def create_leader_election(
    configuration: Configuration, me: LeaderInformation, roles: Iterable[str], log: LivenessTrackingLog
) -> LeaderElection | None:
    """Returns the election of a master, or None if there is none. `me` is published as the leader of the roles; `log`
    is its event log.

    Raises ConfigurationError.
    """
    match configuration.get(HIGH_AVAILABILITY):
        case HighAvailability.NONE:
            return None
        case HighAvailability.ZOOKEEPER:
            settings = ZooKeeperSettings.from_configuration(configuration)
            return ZooKeeperLeaderElection(settings, me, roles, log)
        case HighAvailability.KUBERNETES:
            return KubernetesLeaderElection(
                KubernetesElectionSettings.from_configuration(configuration), me, log
            )


def open_candidates_reader(
    configuration: Configuration, *, timeout_s: float = 10.0
) -> CandidatesReader | None:
    """Returns a reader of the candidates; None without elections. `timeout_s`: for the connection to ZooKeeper.

    Raises ElectionUnreachable, ConfigurationError.
    """
    match configuration.get(HIGH_AVAILABILITY):
        case HighAvailability.NONE:
            return None
        case HighAvailability.ZOOKEEPER:
            settings = ZooKeeperSettings.from_configuration(configuration)
            return ZooKeeperCandidatesReader(settings, timeout_s=timeout_s)
        case HighAvailability.KUBERNETES:
            return KubernetesCandidatesReader(KubernetesElectionSettings.from_configuration(configuration))
