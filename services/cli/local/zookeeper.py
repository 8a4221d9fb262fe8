"""The ZooKeeper of a local cluster: none, an external one with an address, or an embedded one.

Epochs come from ZooKeeper's transaction ids, which start at 0 with its data. With new ZooKeeper data and an older log,
they would be below the epochs in the log. A new embedded ZooKeeper beside an older log therefore starts at the current
second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....infra.zookeeper import EmbeddedZooKeeper, ZooKeeperUnavailable
from ...configuration import Configuration
from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from ...configuration.options.zookeeper import (
    ZOOKEEPER_BASE_EPOCH,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_SASL,
    ZOOKEEPER_TLS,
    SaslMechanism,
)
from ...core.role import DISPATCHER
from ..exit_codes import CommandFailure, ExitCode
from .cluster_record import ClusterRecord

_OPTIONS = "high-availability."


class LocalZooKeeper:
    """`embedded`: it is one of the cluster's own processes, with its data in `data_dir`."""

    def __init__(self, home: Path, configuration: Configuration) -> None:
        self.data_dir = home / "zookeeper"
        self._base_epoch = self.data_dir / "base-epoch"
        self._configuration = configuration
        self.is_used = configuration.get(HIGH_AVAILABILITY) is HighAvailability.ZOOKEEPER
        self.embedded = self.is_used and not configuration.get(ZOOKEEPER_QUORUM)
        self.server: EmbeddedZooKeeper | None = None
        """The embedded one, where it runs, or ran when it was looked for."""
        self._known = ""

    def take_over(self, record: ClusterRecord) -> None:
        """Finds that of a cluster that was started, whatever is configured now."""
        self.embedded = embedded = record.embedded_zookeeper
        self._known = record.high_availability.get(ZOOKEEPER_QUORUM.key, "")
        if not embedded:
            return
        try:
            self.server = EmbeddedZooKeeper.attach(self.data_dir)
        except ZooKeeperUnavailable:
            self.server = None

    def is_running(self) -> bool:
        """Whether the embedded one does, where there is to be one."""
        return not self.embedded or (self.server is not None and self.server.is_running())

    @property
    def has_moved(self) -> bool:
        """Whether the embedded one is not where those that run were told."""
        return self.server is not None and self._known not in ("", self.server.connect_string)

    def check(self) -> None:
        """Raises CommandFailure for what the embedded one can't do."""
        get = self._configuration.get
        wanted = ZOOKEEPER_TLS if get(ZOOKEEPER_TLS) else ZOOKEEPER_SASL
        if self.embedded and (get(ZOOKEEPER_TLS) or get(ZOOKEEPER_SASL) is not SaslMechanism.NONE):
            raise CommandFailure(
                ExitCode.USAGE,
                f"{wanted.key} is set, but the ZooKeeper that would be started here can't do that: name one that can "
                f"with {ZOOKEEPER_QUORUM.key}",
            )

    def launch(self, *, detached: bool, older_log: bool) -> None:
        """Starts the embedded one, whose address is known then, and does not wait until it serves.

        `older_log`: the cluster may have a log already. Raises as EmbeddedZooKeeper.launch.
        """
        if not self._base_epoch.exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._base_epoch.write_text(f"{int(time.time()) if older_log else 0}\n")
        self.server = EmbeddedZooKeeper(self.data_dir)
        self.server.launch(detached=detached)

    @contextmanager
    def contenders(self, configuration: Configuration) -> Iterator[Callable[[], Collection[str]]]:
        """Gives who stands for the lead of the Dispatcher, by address; nobody where there are no elections.

        `configuration` has the address of the ZooKeeper that runs. Raises Failure where it does not answer.
        """
        if not self.is_used:
            yield tuple
            return
        from kazoo.handlers.threading import KazooTimeoutError

        from ...election.candidates_reader import CandidatesReader
        from ...election.settings import ZooKeeperSettings

        settings = ZooKeeperSettings.from_configuration(configuration)
        try:
            contenders = CandidatesReader(settings)
        except KazooTimeoutError:
            raise CommandFailure(
                ExitCode.UNREACHABLE,
                f"ZooKeeper at {settings.quorum} does not answer: does it run, and is {ZOOKEEPER_QUORUM.key} right?",
            ) from None
        with contenders:
            yield lambda: contenders.candidates_of(DISPATCHER)

    def settings(self) -> dict[str, str]:
        """What a process of the cluster, wherever it is started, needs to know: option -> text."""
        own = {
            each.key: each.text for each in self._configuration.settings() if each.key.startswith(_OPTIONS)
        }
        if self.server is not None:
            own[ZOOKEEPER_QUORUM.key] = self.server.connect_string
            if self._base_epoch.exists():
                own.setdefault(ZOOKEEPER_BASE_EPOCH.key, self._base_epoch.read_text().strip())
        return own
