"""`<home>/simulated.json`: the list of TaskExecutors that one process of a simulated cluster runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...schemas.resource_manager import RegisterTaskExecutor
from ...schemas.types import HardwareDescription, ResourceProfile
from .task_events import HARDWARE, PROFILE


class ForkMember(msgspec.Struct, frozen=True):
    """A simulated TaskExecutor, as it registers."""

    resource_id: str
    slots: int
    profile: ResourceProfile = PROFILE
    hardware: HardwareDescription = HARDWARE
    configuration: dict[str, str] = {}

    @classmethod
    def from_registration(cls, said: RegisterTaskExecutor) -> ForkMember:
        """One that registers as another one did."""
        return cls(
            said.resource_id,
            said.number_of_slots,
            said.default_slot_profile,
            said.hardware,
            dict(said.configuration),
        )


class CorruptMembersFile(Exception):
    """The file says nothing that can be used; the message says what to do."""


def members_path(home: Path) -> Path:
    """Where the file of a home is."""
    return home / "simulated.json"


def read_members(home: Path) -> list[ForkMember]:
    """Those of a home; none where there is no file. Raises DamagedMembers."""
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
    """Replaces the file of a home as one step."""
    path = members_path(home)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(list(members)), indent=1) + b"\n")
    fresh.replace(path)
