"""A cluster on this machine with a network for each elected jobmanager, which a test can cut."""

from __future__ import annotations

from tailrace.services.cli.local.cluster import LocalCluster
from tailrace.services.cli.local.process_names import is_master
from tailrace.services.configuration import Configuration
from tailrace.services.configuration.options.cluster import BOOTSTRAP_SERVERS
from tailrace.services.configuration.options.zookeeper import ZOOKEEPER_QUORUM

from ..high_availability.network_links import Network


class NetworkedCluster(LocalCluster):
    """Elected jobmanagers reach Kafka and ZooKeeper through links; all other processes connect directly."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.networks: dict[str, Network] = {}
        """Of the jobmanagers, by name."""
        self._ends: dict[str, tuple[str, ...]] = {}

    def configuration_of(self, name: str) -> Configuration:
        own = super().configuration_of(name)
        quorum = own.get(ZOOKEEPER_QUORUM)
        if not is_master(name) or not quorum:
            return own
        kafka, zookeeper = own.get(BOOTSTRAP_SERVERS), quorum.split(",")
        # A server that was started again may be elsewhere.
        if self._ends.get(name) != (kafka, *zookeeper):
            if name in self.networks:
                self.networks[name].close()
            self.networks[name] = Network(kafka, zookeeper)
            self._ends[name] = (kafka, *zookeeper)
        network = self.networks[name]
        links = ",".join(link.address for link in network.zookeeper)
        return own.replace({BOOTSTRAP_SERVERS.key: network.kafka.address, ZOOKEEPER_QUORUM.key: links})

    def close(self) -> None:
        """Closes the links."""
        for network in self.networks.values():
            network.close()
