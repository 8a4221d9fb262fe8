"""Which processes of a cluster would stop at a feature level because their release does not know it.

Masters publish the highest level that they know: a candidate in the election service, where only live masters are
listed, and a leader in its claim. A TaskExecutor does so in its claim; those that are registered count.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..configuration import Configuration
from ..core.leadership import LeadershipState
from ..core.role import TASK_EXECUTOR, address
from ..election.candidates import ElectionUnreachable
from ..election.factory import open_candidates_reader
from ..resource_manager.state import ResourceManagerState

_MOST_NAMED = 3


def check_level(
    level: int, configuration: Configuration, leadership: LeadershipState, workers: ResourceManagerState
) -> str | None:
    """Returns why the cluster cannot be raised to the level; None if it can. Waits for the election service."""
    try:
        masters = _levels_of_masters(configuration)
    except ElectionUnreachable as error:
        return f"which levels the standby masters know cannot be read: {error}"
    return find_refusal(level, leadership, workers, masters)


def find_refusal(
    level: int, leadership: LeadershipState, workers: ResourceManagerState, masters: Mapping[str, int]
) -> str | None:
    """Like `check_level`; `masters` are the levels that the live masters know, by what they are called."""
    if level < leadership.feature_level:
        return f"the cluster is at feature level {leadership.feature_level}, and a level is never lowered"
    known = {**masters, **_levels_of_workers(leadership, workers)}
    below = [f"{name} (up to level {highest})" for name, highest in sorted(known.items()) if highest < level]
    if not below:
        return None
    more = f" and {len(below) - _MOST_NAMED} more" if len(below) > _MOST_NAMED else ""
    return (
        f"these processes do not know feature level {level}: {', '.join(below[:_MOST_NAMED])}{more}; install the "
        "release that knows it on all of them first"
    )


def _levels_of_masters(configuration: Configuration) -> dict[str, int]:
    reader = open_candidates_reader(configuration)
    if reader is None:
        return {}
    with reader:
        return {f"jobmanager {each.address}": each.feature_level for each in reader.read()}


def _levels_of_workers(leadership: LeadershipState, workers: ResourceManagerState) -> dict[str, int]:
    leaders = {worker: leadership.leader(address(TASK_EXECUTOR, worker)) for worker in workers.workers}
    return {
        f"taskexecutor {worker}": leader.feature_level
        for worker, leader in leaders.items()
        if leader is not None
    }
