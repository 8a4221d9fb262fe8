"""Who elects the leader, by `high-availability.type`."""

from __future__ import annotations

from ..configuration import Configuration
from ..configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from .information import LeaderInformation
from .mandates import Mandates
from .settings import ZooKeeperSettings
from .zookeeper_mandates import ZooKeeperMandates


def mandates_of(configuration: Configuration, me: LeaderInformation) -> Mandates | None:
    """What a master contends by, `me` being what it says of itself where it leads; None where nobody stands against it.

    Raises ConfigurationError.
    """
    match configuration.get(HIGH_AVAILABILITY):
        case HighAvailability.NONE:
            return None
        case HighAvailability.ZOOKEEPER:
            return ZooKeeperMandates(ZooKeeperSettings.of(configuration), me)
