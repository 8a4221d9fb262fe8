"""The TaskExecutor: offers slots, and runs the tasks that JobMasters submit into them."""

from .role import TaskExecutor

__all__ = ["TaskExecutor"]
