"""The ApplicationMaster's conversation by Hadoop's AMRMClient and NMClient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from ...infra.closing import Closeable
from .application_master import (
    Allocation,
    Capability,
    CompletedContainer,
    Container,
    ContainerLaunch,
    FinalStatus,
    NodeUpdate,
    Preemption,
    Registration,
)
from .errors import AttemptSuperseded, JvmEnded, RequestRefused, YarnError, with_remedy
from .jvm_gateway import JvmGateway, describe_java_error
from .kerberos import TICKET, KerberosLogin, log_in, new_file_system_tokens, serialise

_SUPERSEDED: Final = frozenset(
    {"ApplicationAttemptNotFoundException", "ApplicationNotFoundException", "InvalidToken"}
)
_REFUSED: Final = frozenset({"InvalidResourceRequestException"})
_NODE_MANAGER_PATIENCE: Final = "yarn.client.nodemanager-connect.max-wait-ms"
_NODE_MANAGER_PATIENCE_MS: Final = 20_000
_AM_RM_TOKEN: Final = "YARN_AM_RM_TOKEN"
_RUNNING: Final = "RUNNING"


class JvmApplicationMaster(Closeable):
    """Starts a JVM, which ends with `close`. The tokens come from the files that YARN names in the environment."""

    def __init__(
        self,
        configuration_directory: Path | None = None,
        *,
        log: Path | None = None,
        login: KerberosLogin = TICKET,
    ) -> None:
        self._gateway = gateway = JvmGateway(
            configuration_directory, log=log, java_options=login.java_options
        )
        self._has_keytab = bool(login.keytab)
        self._jvm = jvm = gateway.jvm
        self._configuration = gateway.configuration()
        # Hadoop's client would try for minutes: then another node is better.
        self._configuration.set(_NODE_MANAGER_PATIENCE, str(_NODE_MANAGER_PATIENCE_MS))
        self._records = jvm.org.apache.hadoop.yarn.api.records
        self._containers: dict[str, Any] = {}
        """Container id -> YARN's record of it, with its token."""
        self._requests: dict[int, Any] = {}
        clients = jvm.org.apache.hadoop.yarn.client.api
        with _refusals():
            log_in(gateway, login)
            self._resource_manager = clients.AMRMClient.createAMRMClient()
            self._resource_manager.init(self._configuration)
            self._resource_manager.start()
            self._node_managers = clients.NMClient.createNMClient()
            # By default it stops all containers when it ends.
            self._node_managers.cleanupRunningContainersOnStop(False)
            self._node_managers.init(self._configuration)
            self._node_managers.start()

    def register(self, host: str, port: int, tracking_url: str) -> Registration:
        with _refusals():
            answer = self._resource_manager.registerApplicationMaster(host, port, tracking_url)
            largest = answer.getMaximumResourceCapability()
            environment = self._jvm.java.lang.System.getenv("CONTAINER_ID")
            attempt = self._records.ContainerId.fromString(environment).getApplicationAttemptId()
            return Registration(
                application_id=str(attempt.getApplicationId().toString()),
                attempt=int(attempt.getAttemptId()),
                queue=str(answer.getQueue() or ""),
                max_memory_mib=int(largest.getMemorySize()),
                max_vcores=int(largest.getVirtualCores()),
                previous=tuple(map(self._take, answer.getContainersFromPreviousAttempts())),
            )

    def request_container(self, request_id: int, capability: Capability) -> None:
        with _refusals():
            builder = self._jvm.org.apache.hadoop.yarn.client.api.AMRMClient.ContainerRequest.newBuilder()
            request = (
                builder.capability(
                    self._records.Resource.newInstance(capability.memory_mib, capability.vcores)
                )
                .priority(self._records.Priority.newInstance(capability.priority))
                .allocationRequestId(request_id)
                .build()
            )
            self._requests[request_id] = request
            self._resource_manager.addContainerRequest(request)

    def withdraw_request(self, request_id: int) -> None:
        request = self._requests.pop(request_id, None)
        if request is not None:
            with _refusals():
                self._resource_manager.removeContainerRequest(request)

    def allocate(self) -> Allocation:
        with _refusals():
            answer = self._resource_manager.allocate(0.0)
            return Allocation(
                allocated=tuple(map(self._take, answer.getAllocatedContainers())),
                completed=tuple(map(self._completed, answer.getCompletedContainersStatuses())),
                previous=tuple(map(self._take, answer.getContainersFromPreviousAttempts() or ())),
                nodes=tuple(map(_node, answer.getUpdatedNodes())),
                preemptions=tuple(_preemptions(answer.getPreemptionMessage())),
            )

    def start_container(self, container: Container, launch: ContainerLaunch) -> None:
        with _refusals():
            context = self._records.ContainerLaunchContext.newInstance(
                self._jvm.java.util.HashMap(
                    {name: self._local_resource(name, launch) for name in launch.local_resources}
                ),
                self._jvm.java.util.HashMap(dict(launch.environment)),
                self._gateway.list_of([launch.command]),
                None,
                self._tokens(),
                None,
            )
            self._node_managers.startContainer(self._containers[container.container_id], context)

    def is_running(self, container: Container) -> bool:
        with _refusals():
            found = self._containers[container.container_id]
            try:
                status = self._node_managers.getContainerStatus(found.getId(), found.getNodeId())
            except Py4JJavaError as error:
                if "is not handled by this NodeManager" in str(error.java_exception.getMessage()):
                    return False
                raise
            return str(status.getState().toString()) == _RUNNING

    def stop_container(self, container: Container) -> None:
        with _refusals():
            found = self._containers[container.container_id]
            # A NodeManager that is gone costs time; YARN gets the container back at the next heartbeat anyway.
            self._resource_manager.releaseAssignedContainer(found.getId())
            with contextlib.suppress(Py4JJavaError):
                self._node_managers.stopContainer(found.getId(), found.getNodeId())

    def unregister(self, status: FinalStatus, diagnostics: str, tracking_url: str) -> None:
        final = getattr(self._records.FinalApplicationStatus, status.value)
        with _refusals():
            self._resource_manager.unregisterApplicationMaster(final, diagnostics, tracking_url)

    def delete_directory(self, uri: str) -> bool:
        with _refusals():
            path = self._jvm.org.apache.hadoop.fs.Path(uri)
            return bool(path.getFileSystem(self._configuration).delete(path, True))

    def close(self) -> None:
        self._gateway.close()

    def _take(self, found: Any) -> Container:
        container = Container(
            container_id=str(found.getId().toString()),
            node=str(found.getNodeId().toString()),
            request_id=int(found.getAllocationRequestId()),
        )
        self._containers[container.container_id] = found
        return container

    def _completed(self, status: Any) -> CompletedContainer:
        container_id = str(status.getContainerId().toString())
        self._containers.pop(container_id, None)
        return CompletedContainer(
            container_id=container_id,
            exit_status=int(status.getExitStatus()),
            diagnostics=str(status.getDiagnostics() or ""),
        )

    def _local_resource(self, name: str, launch: ContainerLaunch) -> Any:
        resource, records = launch.local_resources[name], self._records
        return records.LocalResource.newInstance(
            records.URL.fromURI(self._jvm.java.net.URI(resource.uri)),
            getattr(records.LocalResourceType, resource.type),
            getattr(records.LocalResourceVisibility, resource.visibility),
            resource.size,
            resource.timestamp,
        )

    def _tokens(self) -> Any:
        """Returns the tokens of this process without the one by which it speaks as ApplicationMaster; with a keytab,
        new ones of HDFS."""
        users = self._jvm.org.apache.hadoop.security.UserGroupInformation
        credentials = users.getCurrentUser().getCredentials()
        for alias in list(credentials.getTokenMap().keySet()):
            if str(credentials.getToken(alias).getKind().toString()) == _AM_RM_TOKEN:
                credentials.removeToken(alias)
        if self._has_keytab:
            credentials.addAll(new_file_system_tokens(self._gateway, self._configuration))
        return serialise(self._gateway, credentials)


def _node(report: Any) -> NodeUpdate:
    return NodeUpdate(
        node=str(report.getNodeId().toString()),
        state=str(report.getNodeState().toString()),
        health_report=str(report.getHealthReport() or ""),
    )


def _preemptions(message: Any) -> Iterator[Preemption]:
    if message is not None:
        for contract, is_strict in ((message.getStrictContract(), True), (message.getContract(), False)):
            if contract is not None:
                for container in contract.getContainers():
                    yield Preemption(str(container.getId().toString()), is_strict)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raises Hadoop's exceptions, and the end of the JVM, as YarnError."""
    try:
        yield
    except Py4JJavaError as error:
        text = describe_java_error(error)
        if text.partition(":")[0] in _SUPERSEDED:
            raise AttemptSuperseded(f"YARN has ended this attempt of the application: {text}") from error
        if text.partition(":")[0] in _REFUSED:
            raise RequestRefused(text) from error
        raise YarnError(with_remedy(text)) from error
    except (Py4JError, OSError) as error:
        raise JvmEnded(f"the JVM with Hadoop's clients does not answer: {error or repr(error)}") from error
