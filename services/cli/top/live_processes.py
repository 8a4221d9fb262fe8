"""What the log can't say: which processes run on this machine, and who stands by for an election in ZooKeeper.

Asked now and then on a thread of its own, since ZooKeeper may take its time; the past has none of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec

from ....infra import threads
from ...configuration import Configuration

_INTERVAL_S = 5.0
_TIMEOUT_S = 5.0


class LiveProcesses(msgspec.Struct, frozen=True):
    """Masters by address (host:pid)."""

    names: Mapping[str, str] = {}
    """Of those that `cluster start` has started."""
    running: Mapping[str, bool] = {}
    """Of the same: whether they run."""
    contenders: tuple[str, ...] | None = None
    """Who stands for election; None: not known, or there are no elections."""


def read_live_processes(configuration: Configuration) -> LiveProcesses:
    """As it is now. What can't be asked is not known."""
    from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
    from ..exit_codes import to_failure
    from ..local import LocalCluster

    try:
        local = LocalCluster.from_configuration(configuration)
    except Exception as error:
        if to_failure(error) is None:
            raise
        local = None
    masters = {} if local is None else {each.address: each for each in local.masters.values()}
    contenders = None
    if configuration.get(HIGH_AVAILABILITY) is not HighAvailability.NONE:
        contenders = _contenders(configuration)
    return LiveProcesses(
        names={address: each.name for address, each in masters.items()},
        running={address: each.is_running() for address, each in masters.items()},
        contenders=contenders,
    )


def _contenders(configuration: Configuration) -> tuple[str, ...] | None:
    from ...election.settings import ZooKeeperSettings
    from ...election.zookeeper_nodes import ZooKeeperUnreachable, inventory

    try:
        found = inventory(ZooKeeperSettings.from_configuration(configuration), timeout_s=_TIMEOUT_S)
    except ZooKeeperUnreachable:
        return None
    return tuple(dict.fromkeys(each.address for role in found for each in role.contenders))


class LiveProcessesPoller:
    """Keeps asking."""

    def __init__(self, asked: Callable[[], LiveProcesses]) -> None:
        self._asked = asked
        self._stopped = threading.Event()
        self._answer = LiveProcesses()
        self._error: Exception | None = None
        self._thread = threads.Thread(target=self._run, name="top-presence")

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def latest(self) -> LiveProcesses:
        """The last one. Raises what ended the asking: a mistake of ours."""
        if self._error is not None:
            raise self._error
        return self._answer

    def stop(self) -> None:
        """Ends it; an answer that is awaited is not waited for."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._answer = self._asked()
                self._stopped.wait(_INTERVAL_S)
        except Exception as error:
            self._error = error
