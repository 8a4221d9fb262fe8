"""The TaskExecutor: offers slots, and runs the tasks that JobMasters put into them."""

from .role import TaskExecutor

__all__ = ["TaskExecutor"]
