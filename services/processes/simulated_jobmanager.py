"""A jobmanager process of a simulated cluster: real masters, and no topic of a job or file of a checkpoint is touched.

The log that such a cluster continues may be a copy of another cluster's (`tailrace fork`): that cluster keeps its
topics and savepoints.
"""

from __future__ import annotations

import threading

from ..configuration import Configuration
from ..core.role import Shell
from ..dispatcher.savepoints import DisposalResult
from ..host.host import Host
from ..simulation.fake_effects import NoTopicJobMasterEffects
from . import jobmanager
from .jobmanager import FollowJobMaster, MasterEffects, RetireJobMaster


def run(configuration: Configuration, stop: threading.Event) -> None:
    """As `jobmanager.run`, without side effects outside of the log."""
    jobmanager.run(configuration, stop, _EFFECTS)


def _create_job_master_shell(
    configuration: Configuration, host: Host, follow: FollowJobMaster, retire: RetireJobMaster
) -> Shell:
    del configuration
    return NoTopicJobMasterEffects(host.emit, follow, retire)


def _dispose_nothing(path: str, *, may_be_gone: bool = False) -> DisposalResult:
    del path, may_be_gone
    return DisposalResult()


_EFFECTS = MasterEffects(
    _create_job_master_shell, dispose_savepoint=_dispose_nothing, deletes_job_topics=False, has_own_clock=True
)
