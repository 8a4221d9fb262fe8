"""Worker drivers: they start and stop TaskExecutors in active mode (`resourcemanager.mode: active`)."""

from .driver import OnExit, WorkerDriver, WorkerNotStarted

__all__ = ["OnExit", "WorkerDriver", "WorkerNotStarted"]
