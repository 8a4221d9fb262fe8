"""The contract of a worker driver: the interface between the ResourceManager's shell and processes, YARN or
Kubernetes.

A driver keeps no state that its successor in another jobmanager could not find again: workers outlive the jobmanager
that started them, and a driver knows them by their resource ids (a pod's label, a container's environment, a file
beside a process). It decides nothing: the ResourceManager decides how many workers there are and when one stops. Its
instructions stay until the log records a result, so a successor may request the same start or stop again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from ....schemas.body import Body
from ....schemas.types import JobStatus, ResourceProfile

OnExit = Callable[[str, str], None]
"""(resource id, reason): a worker that was started has ended, by itself or because it was stopped; from any thread,
once for each worker, as soon as the driver knows."""
Report = Callable[[Body, int | None], None]
"""(event, cause): an event of the platform for the log, by which no role goes; from any thread. The cause is an offset;
None: that of its worker."""


class ClusterEnd(msgspec.Struct, frozen=True):
    """How the cluster has terminated. `cause`: the offset of ClusterTerminated."""

    reason: str
    cause: int
    job_status: JobStatus | None = None
    """The last status of the job that the cluster ran for; None: it ran for no certain job."""
    application: str = ""
    """The application on the platform that the cluster ran in and that was not left; empty: none."""


class WorkerNotStarted(Exception):
    """A worker cannot be started. The message gives the reason and a remedy."""


class PlatformUnavailable(Exception):
    """The platform does not answer, or refuses. The message gives the reason."""


class WorkerDriver(Protocol):
    """Starts and stops workers. Any thread may call any method. A method may take as long as the platform needs."""

    def start(
        self, resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None = None
    ) -> str:
        """Starts a TaskExecutor that registers under this name; returns its address, for messages. It may wait until
        the platform has resources. `slot_profile`: what each slot has to offer at least, for drivers that can size
        workers (`ResourceManagerOptions.sizes_workers`); None: what the configuration says.

        A worker that already runs under that name is not started again. Raises WorkerNotStarted.
        """
        ...

    def stop(self, resource_id: str, reason: str) -> bool:
        """Stops a worker, by force if necessary; returns at once. A call of OnExit follows.

        Returns False if no such worker runs; then no call follows.
        """
        ...

    def survivors(self) -> Mapping[str, str]:
        """Returns all running workers of every jobmanager: resource id -> address. Their ends are reported too.

        Raises PlatformUnavailable.
        """
        ...

    def close(self) -> None:
        """Ends waiting starts, and stops reporting. Workers continue."""
        ...


class WorkerDrivers(Protocol):
    """The drivers of a process, one for each term as leader."""

    def create(self, on_exit: OnExit, report: Report) -> WorkerDriver:
        """Returns the driver of the next term."""
        ...

    def owns(self, end: ClusterEnd) -> bool:
        """Returns whether the cluster has ended in the application that this process belongs to, and an earlier
        process of it has not left the platform. Then a new run of the cluster would be wrong."""
        ...

    def leave(self, end: ClusterEnd) -> bool:
        """Leaves the platform, because the cluster has terminated. Returns at once, True when it is done; the caller
        asks again until then."""
        ...

    def close(self) -> None:
        """Ends the conversation with the platform. Workers continue, unless the cluster has left it."""
        ...
