"""Feature levels: the version of the rules by which the roles interpret a log (KIP-584, as in KRaft).

Newer code replays old logs: `tailrace replay --check`, replicas, time travel. A change of what a role decides, or of
what an event means, would change history. Therefore each such change has a **level**. Roles are created for a level
(`RoleFactory`) and behave below it as they did before. The log of a new cluster starts at the level of its release. An
older cluster keeps its level until an operator raises it (`tailrace cluster upgrade`) and the leader knows the new
level. All readers switch at the offset of FeatureLevelRaised.

| level | change |
|---|---|
| 1 | the rules of every log that does not name a level |
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
