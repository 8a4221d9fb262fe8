"""The roles of this release by feature level (services/core/feature_level.py).

A change of what a role decides, or of what an event means, comes with a new level; the role is created for a level
here, and behaves as before below it. All roles are the same at the one level that there is so far.
"""

from __future__ import annotations

from .core.role import AnyRole
from .dispatcher import Dispatcher
from .job_master import JobMaster
from .resource_manager import ResourceManager
from .task_executor import TaskExecutor


def master_roles(_level: int) -> list[AnyRole]:
    """Returns the roles of a jobmanager at a feature level."""
    return [Dispatcher(), ResourceManager(), JobMaster()]


def task_executor_roles(_level: int) -> list[AnyRole]:
    """Returns the role of a TaskExecutor at a feature level."""
    return [TaskExecutor()]


def roles_at(level: int) -> list[AnyRole]:
    """Returns all roles at a feature level."""
    return [*master_roles(level), *task_executor_roles(level)]
