"""Creates the driver that `resourcemanager.worker-driver` names. Another platform is one more entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...configuration import Configuration
from ...configuration.options.resource_manager import WORKER_DRIVER
from ...configuration.options.resource_manager import WorkerDriver as Name
from .driver import OnExit, WorkerDriver
from .local_process import LocalProcessDriver, taskexecutor_command


def _local_process(configuration: Configuration, on_exit: OnExit) -> WorkerDriver:
    command = taskexecutor_command(configuration)
    return LocalProcessDriver(configuration.home, configuration.cluster_id, command, on_exit)


DRIVERS: Mapping[Name, Callable[[Configuration, OnExit], WorkerDriver]] = {
    Name.LOCAL_PROCESS: _local_process,
}


def new_driver(configuration: Configuration, on_exit: OnExit) -> WorkerDriver:
    """Returns the driver that the configuration names."""
    return DRIVERS[configuration.get(WORKER_DRIVER)](configuration, on_exit)
