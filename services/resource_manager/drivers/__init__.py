"""Worker drivers: they start and stop TaskExecutors in active mode (`resourcemanager.mode: active`)."""

from .driver import (
    ClusterEnd,
    OnExit,
    PlatformUnavailable,
    Report,
    WorkerDriver,
    WorkerDrivers,
    WorkerNotStarted,
)

__all__ = [
    "ClusterEnd",
    "OnExit",
    "PlatformUnavailable",
    "Report",
    "WorkerDriver",
    "WorkerDrivers",
    "WorkerNotStarted",
]
