"""The validation of indexes in the processes of a cluster: `debug.validate-indexes`."""

from __future__ import annotations

from collections.abc import Mapping

from ..configuration import Configuration
from ..configuration.options.debug import VALIDATE_INDEXES
from ..core.index_validation import IndexErrors
from ..core.role import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_EXECUTOR
from ..dispatcher import index_validation as of_dispatcher
from ..job_master import index_validation as of_job_master
from ..resource_manager import index_validation as of_resource_manager
from ..task_executor import index_validation as of_task_executor

INDEX_ERRORS: Mapping[str, IndexErrors] = {
    DISPATCHER: of_dispatcher.index_errors,
    RESOURCE_MANAGER: of_resource_manager.index_errors,
    JOB_MASTER: of_job_master.index_errors,
    TASK_EXECUTOR: of_task_executor.index_errors,
}
"""By kind of role, the function that recomputes the indexes of its states."""


def index_errors(configuration: Configuration) -> Mapping[str, IndexErrors] | None:
    """Returns `INDEX_ERRORS` if the option is on, or None."""
    return INDEX_ERRORS if configuration.get(VALIDATE_INDEXES) else None
