"""The settings of a fork, besides its log: the TaskExecutors of the original cluster, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...pipelines.graph.job_options import CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY
from ..configuration.options import BY_KEY
from ..configuration.options.cluster import CLUSTER_ID
from ..configuration.options.high_availability import ABANDON_ELECTION
from ..configuration.options.simulation import CLOCK_BEHIND, SIMULATED
from ..configuration.sources import FILE
from ..core.replica import Replica
from ..core.role import DISPATCHER, RESOURCE_MANAGER, TASK_EXECUTOR, address
from ..dispatcher.state import DispatcherState
from ..resource_manager.state import ResourceManagerState
from ..task_executor.state import TaskExecutorState
from .fork_members import ForkMember

_HOME_OPTIONS = frozenset({CHECKPOINTS_DIRECTORY.key, SAVEPOINTS_DIRECTORY.key, CLUSTER_ID.key})


def read_fork_members(replica: Replica) -> list[ForkMember]:
    """The TaskExecutors that are registered, as they registered; by name."""
    manager = replica.states.get(RESOURCE_MANAGER)
    registered = manager.workers if isinstance(manager, ResourceManagerState) else {}
    members = []
    for resource_id in sorted(registered):
        state = replica.states.get(address(TASK_EXECUTOR, resource_id))
        if isinstance(state, TaskExecutorState) and state.registration is not None:
            members.append(ForkMember.from_registration(state.registration.is_sent))
    return members


def read_fork_settings(
    replica: Replica, cluster: str, behind: int = 0, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What the home of a fork called `cluster` is configured with: that it is simulated, with clocks that are behind by
    so many microseconds, `more`, and what the log says, but for paths: of this release's options, those that have
    another value than by default."""
    dispatcher = replica.states.get(DISPATCHER)
    said = dispatcher.configuration if isinstance(dispatcher, DispatcherState) else None
    settings = {CLUSTER_ID.key: cluster, SIMULATED.key: SIMULATED.write(True), **(more or {})}
    if behind > 0:
        settings[CLOCK_BEHIND.key] = CLOCK_BEHIND.write(behind)
    if any(leader.elected_by for leader in replica.leadership.leaders.values()):
        # Whoever was elected leads the other cluster, not this one.
        settings[ABANDON_ELECTION.key] = ABANDON_ELECTION.write(True)
    for key, text in sorted((said or {}).items()):
        option = BY_KEY.get(key)
        if option is None or key in _HOME_OPTIONS or key in settings:
            continue
        if option.write(option.of({key: text})) != option.write(option.default):
            settings[key] = text
    return settings


def write_settings(home: Path, settings: Mapping[str, str]) -> Path:
    """Writes the home's file of options; returns where it is."""
    import yaml

    path = home / FILE
    path.write_text(yaml.safe_dump(dict(settings), sort_keys=False), "utf-8")
    return path
