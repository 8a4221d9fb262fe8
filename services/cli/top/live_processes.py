"""Facts that the log does not have: which masters run on this machine, and which stand for election."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...configuration import Configuration
from ...election.candidates import ElectionUnreachable
from ...election.factory import open_candidates_reader
from ..exit_codes import to_failure
from ..local.cluster import LocalCluster

_TIMEOUT_S = 5.0


class LiveProcesses(msgspec.Struct, frozen=True):
    """Masters by address (host:pid)."""

    names: Mapping[str, str] = {}
    """The names of the processes that `cluster start` has started."""
    running: Mapping[str, bool] = {}
    """Whether the processes run."""
    contenders: tuple[str, ...] | None = None
    """The candidates of the election; None: unknown, or there are no elections."""


def read_live_processes(configuration: Configuration) -> LiveProcesses:
    """Reads both; what cannot be read stays unknown."""
    try:
        local = LocalCluster.from_configuration(configuration)
    except Exception as error:
        if to_failure(error) is None:
            raise
        local = None
    masters = {} if local is None else {master.address: master for master in local.masters.values()}
    return LiveProcesses(
        names={address: master.name for address, master in masters.items()},
        running={address: master.is_running() for address, master in masters.items()},
        contenders=_contenders(configuration),
    )


def _contenders(configuration: Configuration) -> tuple[str, ...] | None:
    try:
        reader = open_candidates_reader(configuration, timeout_s=_TIMEOUT_S)
        if reader is None:
            return None
        with reader:
            return tuple(reader.candidates())
    except ElectionUnreachable:
        return None
