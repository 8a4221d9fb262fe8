"""The servers of the leader, as a process on another host finds them in the log.

All servers listen on loopback by default, where only the leader's own host reaches them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from ...infra.logging_setup import logger
from ...infra.server_socket import is_loopback
from ..core.leadership import LeadershipState
from ..core.role import DISPATCHER

_log = logger(__name__)


class LeaderEndpoint:
    """Finds one server of the leader. `option`: the key that sets the host of that server."""

    def __init__(self, leadership: Callable[[], LeadershipState], name: str, option: str) -> None:
        self._leadership = leadership
        self._name = name
        self._option = option
        self._warned_of = ""

    def __call__(self) -> str | None:
        """Returns host:port; None without a leader or without the server. Warns once for each leader whose server this
        host can't reach."""
        leader = self._leadership().leader(DISPATCHER)
        found = None if leader is None else leader.endpoints.get(self._name)
        if leader is None or found is None:
            return None
        leader_host = leader.address.rpartition(":")[0]
        if leader_host == socket.gethostname() or leader.session == self._warned_of:
            return found
        if is_loopback(found.rpartition(":")[0].strip("[]")):
            self._warned_of = leader.session
            _log.warning(
                "a server of the leader can't be reached from this host: set the option on the leader's host",
                server=self._name,
                address=found,
                leader=leader.address,
                option=self._option,
            )
        return found
