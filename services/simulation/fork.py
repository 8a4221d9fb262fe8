"""The parts of a fork besides its log: the TaskExecutors of the original cluster, and its options.

One process of the fork simulates all TaskExecutors; `<home>/simulated.json` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ...pipelines.graph.job_options import CHECKPOINTS_DIRECTORY, SAVEPOINTS_DIRECTORY
from ...schemas.resource_manager import RegisterTaskExecutor
from ...schemas.types import HardwareDescription, ResourceProfile
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
from .task_events import HARDWARE, PROFILE

_HOME_OPTIONS = frozenset({CHECKPOINTS_DIRECTORY.key, SAVEPOINTS_DIRECTORY.key, CLUSTER_ID.key})


class ForkMember(msgspec.Struct, frozen=True):
    """A simulated TaskExecutor, as it registers."""

    resource_id: str
    slots: int
    profile: ResourceProfile = PROFILE
    hardware: HardwareDescription = HARDWARE
    configuration: dict[str, str] = {}

    @classmethod
    def from_registration(cls, body: RegisterTaskExecutor) -> ForkMember:
        """Returns a member that registers as another TaskExecutor did."""
        return cls(
            body.resource_id,
            body.number_of_slots,
            body.default_slot_profile,
            body.hardware,
            dict(body.configuration),
        )


class CorruptMembersFile(Exception):
    """The file cannot be read; the message gives a remedy."""


def members_path(home: Path) -> Path:
    """Returns the path of the file in a home."""
    return home / "simulated.json"


def read_members(home: Path) -> list[ForkMember]:
    """Returns the members of a home; none if there is no file. Raises CorruptMembersFile."""
    path = members_path(home)
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[ForkMember])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        raise CorruptMembersFile(
            f"{path} can't be read ({error}): fork the cluster again, into another home"
        ) from error


def write_members(home: Path, members: Iterable[ForkMember]) -> None:
    """Replaces the file of a home atomically."""
    path = members_path(home)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(list(members)), indent=1) + b"\n")
    fresh.replace(path)


def read_fork_members(replica: Replica) -> list[ForkMember]:
    """Returns the registered TaskExecutors, sorted by resource id."""
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
    """Returns the options of a fork with the id `cluster`: simulation on, clocks behind by so many microseconds,
    then `more`, then the options of the log that this release knows and that differ from their defaults, without
    paths."""
    dispatcher = replica.states.get(DISPATCHER)
    configuration = dispatcher.configuration if isinstance(dispatcher, DispatcherState) else None
    settings = {CLUSTER_ID.key: cluster, SIMULATED.key: SIMULATED.write(True), **(more or {})}
    if behind > 0:
        settings[CLOCK_BEHIND.key] = CLOCK_BEHIND.write(behind)
    if any(leader.elected_by for leader in replica.leadership.leaders.values()):
        # The elected leader leads the original cluster, not this one.
        settings[ABANDON_ELECTION.key] = ABANDON_ELECTION.write(True)
    for key, text in sorted((configuration or {}).items()):
        option = BY_KEY.get(key)
        if option is None or key in _HOME_OPTIONS or key in settings:
            continue
        if option.write(option.of({key: text})) != option.write(option.default):
            settings[key] = text
    return settings


def write_settings(home: Path, settings: Mapping[str, str]) -> Path:
    """Writes the file of options of a home; returns its path."""
    import yaml

    path = home / FILE
    path.write_text(yaml.safe_dump(dict(settings), sort_keys=False), "utf-8")
    return path
