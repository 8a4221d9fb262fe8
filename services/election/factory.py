"""Creates the leader election that `high-availability.type` names."""

from __future__ import annotations

from ..configuration import Configuration
from ..configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from .kafka_liveness_guard import KafkaLivenessGuard
from .leader_election import LeaderElection
from .leader_information import LeaderInformation
from .log_liveness import LivenessTrackingLog
from .settings import ZooKeeperSettings
from .zookeeper_leader_election import ZooKeeperLeaderElection


def create_leader_election(
    configuration: Configuration, me: LeaderInformation, log: LivenessTrackingLog
) -> LeaderElection | None:
    """Returns the election of a master, or None if there is none. `me` is published when it leads; `log` is its event
    log.

    Raises ConfigurationError.
    """
    match configuration.get(HIGH_AVAILABILITY):
        case HighAvailability.NONE:
            return None
        case HighAvailability.ZOOKEEPER:
            settings = ZooKeeperSettings.from_configuration(configuration)
            mandates = KafkaLivenessGuard(
                ZooKeeperLeaderElection(settings, me), log, timeout_s=settings.session_timeout_s
            )
            mandates.start()
            return mandates
