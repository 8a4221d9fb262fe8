"""The feature level of a log: the version of the rules that its roles follow (KIP-584, as KRaft applies it).

Newer code recomputes old decisions: `tailrace replay --check`, replicas, time travel. A change of what a role decides,
or of what an event means, would give other results for an old log. Every such change therefore gets a **level**. Roles
are created for a level (`RolesAt`) and behave as before below it. The log of a new cluster records the level of the
release that created it. An older log keeps its level until `tailrace cluster upgrade` requests a higher one and the
leading master knows it. All readers apply a FeatureLevelRaised event from its offset on.

| level | change |
|---|---|
| 1 | the rules of a log that records no level |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...infra.version import __version__
from ...schemas.feature_level import FEATURE_LEVEL as FEATURE_LEVEL
from ...schemas.feature_level import FIRST_LEVEL as FIRST_LEVEL

if TYPE_CHECKING:
    from .role import AnyRole

RolesAt = Callable[[int], "Iterable[AnyRole]"]
"""Creates the roles for a level."""


class UnknownFeatureLevel(Exception):
    """The log is at a feature level that this release does not know."""

    def __init__(self, offset: int, level: int, release: str = "", *, is_snapshot: bool = False) -> None:
        """`offset`: where the level was raised or, with `is_snapshot`, of the snapshot that is at the level.
        `release`: the release that raised it; empty: unknown."""
        self.level = level
        since, skip = (
            (f"in the snapshot of offset {offset}", "")
            if is_snapshot
            else (
                f"since offset {offset}",
                f" (Where it was not: -D log.skipped-offsets={offset}, the same for all processes, skips that record.)",
            )
        )
        super().__init__(
            f"the log is at feature level {level} {since}, and this release, {__version__}, supports levels up to "
            f"{FEATURE_LEVEL}: install {f'release {release}' if release else 'the release'} that the cluster was "
            f"upgraded to.{skip}"
        )
