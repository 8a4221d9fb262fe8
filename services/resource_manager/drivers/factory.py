"""Creates the drivers that `resourcemanager.worker-driver` names. Another platform is one more entry."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ...configuration import Configuration
from ...configuration.options.resource_manager import WORKER_DRIVER
from ...configuration.options.resource_manager import WorkerDriver as Name
from ...kubernetes.api_client import require_client
from .driver import ClusterEnd, OnExit, Report, WorkerDriver, WorkerDrivers
from .kubernetes.driver import KubernetesDriver
from .local_process import LocalProcessDriver, taskexecutor_command

OnFailure = Callable[[Exception], None]
"""Ends the process with an error."""


class DriversWithoutSession:
    """Drivers that share nothing: the platform knows the workers, and not this process."""

    def __init__(self, new_driver: Callable[[OnExit], WorkerDriver]) -> None:
        self._new_driver = new_driver

    def create(self, on_exit: OnExit, report: Report) -> WorkerDriver:
        del report
        return self._new_driver(on_exit)

    def owns(self, end: ClusterEnd) -> bool:
        del end
        return False

    def leave(self, end: ClusterEnd) -> bool:
        del end
        return True

    def close(self) -> None:
        pass


def _local_process(configuration: Configuration, rest_url: str, on_failure: OnFailure) -> WorkerDrivers:
    del rest_url, on_failure
    command = taskexecutor_command(configuration)
    return DriversWithoutSession(
        lambda on_exit: LocalProcessDriver(configuration.home, configuration.cluster_id, command, on_exit)
    )


def _yarn(configuration: Configuration, rest_url: str, on_failure: OnFailure) -> WorkerDrivers:
    # A local import: it loads py4j.
    from ...yarn.application_master import ApplicationMaster
    from ...yarn.jvm_application_master import JvmApplicationMaster
    from ...yarn.kerberos import KerberosLogin
    from .yarn import YarnContainers
    from .yarn_launch import create_launch, jvm_log, yarn_settings

    environment = dict(os.environ)

    def connect() -> ApplicationMaster:
        return JvmApplicationMaster(
            log=jvm_log(configuration, environment), login=KerberosLogin.from_configuration(configuration)
        )

    return YarnContainers(
        connect,
        yarn_settings(configuration, environment, rest_url),
        lambda *worker: create_launch(configuration, environment, *worker),
        on_failure,
    )


def _kubernetes(configuration: Configuration, rest_url: str, on_failure: OnFailure) -> WorkerDrivers:
    del rest_url, on_failure
    require_client(WORKER_DRIVER.key)
    return DriversWithoutSession(lambda on_exit: KubernetesDriver(configuration, on_exit))


DRIVERS: Mapping[Name, Callable[[Configuration, str, OnFailure], WorkerDrivers]] = {
    Name.LOCAL_PROCESS: _local_process,
    Name.YARN: _yarn,
    Name.KUBERNETES: _kubernetes,
}


def create_drivers(configuration: Configuration, rest_url: str, on_failure: OnFailure) -> WorkerDrivers:
    """Returns the drivers that the configuration names, for a jobmanager whose REST server has this URL (empty:
    none)."""
    return DRIVERS[configuration.get(WORKER_DRIVER)](configuration, rest_url, on_failure)
