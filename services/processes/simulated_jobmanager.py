"""A jobmanager process of a simulated cluster: real masters without effects on topics of jobs or files of
checkpoints.

The log that such a cluster continues may be a copy of another cluster's (`tailrace fork`): that cluster keeps its
topics and savepoints.
"""

from __future__ import annotations

import threading

from ..blobs.tiered_store import TieredBlobStore
from ..configuration import Configuration
from ..core.role import Shell
from ..dispatcher.savepoints import DisposalResult
from ..host.host import Host
from ..simulation.fake_effects import NoTopicJobMasterEffects
from . import jobmanager
from .jobmanager import FollowJobMaster, MasterEffects, RetireJobMaster


def run(configuration: Configuration, stop: threading.Event) -> None:
    """Like `jobmanager.run`, without side effects outside of the log."""
    jobmanager.run(configuration, stop, _EFFECTS)


def _create_job_master_shell(
    configuration: Configuration,
    host: Host,
    follow: FollowJobMaster,
    retire: RetireJobMaster,
    blobs: TieredBlobStore,
) -> Shell:
    del configuration, blobs
    return NoTopicJobMasterEffects(host.emit, follow, retire)


def _dispose_nothing(path: str, *, may_be_gone: bool = False, tenant: str = "") -> DisposalResult:
    del path, may_be_gone, tenant
    return DisposalResult()


_EFFECTS = MasterEffects(
    _create_job_master_shell, dispose_savepoint=_dispose_nothing, deletes_job_topics=False
)
