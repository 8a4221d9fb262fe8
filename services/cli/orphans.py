"""What is kept outside of the log although the log has no use for it: named by `tailrace cluster status`.

Nodes in ZooKeeper and blobs of jobs that the log does not know or knows as ended, and snapshots of a longer log.
What a master is about to remove, or a client about to submit, is among them for a moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ...pipelines.checkpoint.errors import CheckpointError
from ...schemas.states import JOB_ENDS
from ..blobs.errors import BlobUnavailable
from ..blobs.keeping import Fate, orphans, store_of
from ..configuration import Configuration
from ..high_availability import inventory
from ..high_availability.inventory import RoleNodes
from ..history.views import JobView
from ..snapshots.store import SnapshotStore
from .show import tell


class Orphan(msgspec.Struct, frozen=True):
    """Something by its `path` (of ZooKeeper, or a URI), and why nobody needs it."""

    kind: str
    """node, blobs or snapshot."""
    path: str
    reason: str


def find(
    configuration: Configuration, nodes: tuple[RoleNodes, ...], jobs: Sequence[JobView], end: int
) -> list[Orphan]:
    """All orphans of a cluster; people are told where storage does not answer. `end`: the last offset of the log."""
    ended = {job.job_id: job.status in JOB_ENDS for job in jobs}
    found = [Orphan("node", each.path, each.reason) for each in inventory.orphans(nodes, ended)]
    try:
        found += _blobs(configuration, ended)
        found += _snapshots(configuration, end)
    except (BlobUnavailable, CheckpointError) as error:
        tell(f"which blobs and snapshots are kept is not known: {error}")
    return found


def _blobs(configuration: Configuration, ended: dict[str, bool]) -> Iterator[Orphan]:
    def fate(job_id: str) -> Fate:
        if job_id not in ended:
            return Fate.UNKNOWN
        return Fate.OVER if ended[job_id] else Fate.LIVE

    store = f"{configuration.ha_storage}/{configuration.ha_cluster_id}/blob"
    for job_id in orphans(store_of(configuration), fate):
        reason = f"job {job_id} has ended" if job_id in ended else f"the log knows no job {job_id}"
        yield Orphan("blobs", f"{store}/job_{job_id}", reason)


def _snapshots(configuration: Configuration, end: int) -> Iterator[Orphan]:
    store = SnapshotStore.of(configuration)
    for offset in store.offsets():
        if offset > end:
            reason = f"it reaches offset {offset}, and the log ends at {end}"
            yield Orphan("snapshot", store.uri_of(offset), reason)
