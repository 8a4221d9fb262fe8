"""What the operator of a cluster sets for the topics that tailrace creates: replicas, Kafka's topic settings, and the
tenants that have topics of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import msgspec
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from ..configuration.options.tenants import TENANTS
from ..configuration.options.topics import MIN_INSYNC_REPLICAS, REPLICATION_FACTOR, TOPIC_CONFIG

if TYPE_CHECKING:
    from ..configuration import Configuration

_BROKER_DEFAULT = -1


class TopicOptions(msgspec.Struct, frozen=True):
    """The options of new topics; without any, the broker's defaults."""

    replication_factor: int = _BROKER_DEFAULT
    settings: Mapping[str, str] = {}
    tenants: tuple[str, ...] = ()

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> Self:
        """Returns the options that a cluster's configuration sets."""
        given: tuple[tuple[str, str], ...] = configuration.get(TOPIC_CONFIG)
        settings = dict(given)
        in_sync = configuration.get(MIN_INSYNC_REPLICAS)
        if in_sync is not None:
            settings["min.insync.replicas"] = str(in_sync)
        replicas = configuration.get(REPLICATION_FACTOR)
        factor = _BROKER_DEFAULT if replicas is None else replicas
        return cls(factor, settings, configuration.get(TENANTS))

    def new_topic(
        self,
        name: str,
        partitions: int,
        required: Mapping[str, str],
        preferred: Mapping[str, str] | None = None,
    ) -> NewTopic:
        """Returns a topic to create; `preferred` settings give way to the operator's, `required` ones do not."""
        settings = {**(preferred or {}), **self.settings, **required}
        return NewTopic(name, partitions, self.replication_factor, config=settings)


DEFAULT_OPTIONS = TopicOptions()
