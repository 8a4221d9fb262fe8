"""By which rules the roles of a log go (KIP-584's feature levels, as KRaft has them).

A log is decided again, years later, by newer code: `tailrace replay --check`, replicas, time travel. A change of what
a role decides, or of what an event means to it, would make history wrong. So such a change has a **level**: roles are
made for one (`RolesAt`), and behave below it as they did before. A new cluster's log says the level of the release that
began it; an older one goes on under its own until somebody asks for more (`tailrace cluster upgrade`) and a master that
knows the level leads. From the offset of that FeatureLevelRaised on, all readers go by it, at the same place.

| level | what it brought |
|---|---|
| 1 | what a log goes by that says nothing of levels |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .role import AnyRole

FIRST_LEVEL: Final = 1
FEATURE_LEVEL: Final = 1
"""The highest that this release knows."""

RolesAt = Callable[[int], "Iterable[AnyRole]"]
"""The roles as they are at a level."""


class UnknownFeatureLevel(Exception):
    """The log goes by rules that this release does not know."""

    def __init__(self, offset: int, level: int) -> None:
        self.level = level
        super().__init__(
            f"the log is at feature level {level} since offset {offset}, and this release knows levels up to "
            f"{FEATURE_LEVEL}: install the release that the cluster was upgraded to. (Where it was not: "
            f"-D log.skipped-offsets={offset}, the same for all processes, passes that record over.)"
        )
