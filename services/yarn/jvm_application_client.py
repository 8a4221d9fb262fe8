"""What a client says to YARN and HDFS to bring an application up: YarnClient and FileSystem, in a JVM beside it.

It checks everything that can be checked before it uploads the first file. An application that does not come up is
killed, and its staging directory deleted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from ...infra.closing import Closeable
from ..configuration import Configuration
from .application import ENDED, ApplicationReport, ApplicationRequest, RunningContainer, StagingDirectory
from .application_master import LocalResource
from .errors import JvmEnded, YarnError, with_remedy
from .jvm_gateway import CONFIGURATION_DIRECTORY_VARIABLE, JvmGateway, describe_java_error
from .kerberos import (
    TICKET,
    KerberosLogin,
    add_resource_manager_token,
    log_in,
    new_file_system_tokens,
    serialise,
)
from .resource_check import Node

STAGING_PARENT: Final = ".tailrace"
_POLL_S: Final = 0.25
_ALL_BYTES: Final = (1 << 63) - 1
_DIRECTORY_MODE: Final = "700"
_FILE_MODE: Final = "600"


class JvmApplicationClient(Closeable):
    """One conversation with YARN, for one application. All methods raise YarnError."""

    def __init__(
        self,
        configuration_directory: Path | None = None,
        *,
        log: Path | None = None,
        login: KerberosLogin = TICKET,
    ) -> None:
        """Starts the JVM and logs in; it does not connect. Without a directory that of HADOOP_CONF_DIR is read."""
        if configuration_directory is None and not os.environ.get(CONFIGURATION_DIRECTORY_VARIABLE):
            raise YarnError(
                f"{CONFIGURATION_DIRECTORY_VARIABLE} is not set, so nobody knows where YARN is: set it to the "
                "directory with core-site.xml, hdfs-site.xml and yarn-site.xml"
            )
        self._gateway = JvmGateway(configuration_directory, log=log, java_options=login.java_options)
        self._hadoop = self._gateway.jvm.org.apache.hadoop
        self._records = self._hadoop.yarn.api.records
        self._configuration = self._gateway.configuration()
        self._created: Any = None
        self.application_id = ""
        """The id, once `create` has been called."""
        try:
            with _refusals():
                log_in(self._gateway, login)
                self._yarn = self._hadoop.yarn.client.api.YarnClient.createYarnClient()
                self._yarn.init(self._configuration)
                self._yarn.start()
                self._files = self._hadoop.fs.FileSystem.get(self._configuration)
        except BaseException:
            self._gateway.close()
            raise

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> JvmApplicationClient:
        """Returns a client that logs in as the configuration says; its JVM logs into the home."""
        return cls(
            log=configuration.home / "hadoop-client.log",
            login=KerberosLogin.from_configuration(configuration),
        )

    def close(self) -> None:
        """Ends the JVM. The application continues."""
        self._gateway.close()

    def nodes(self) -> list[Node]:
        """Returns the running nodes (getClusterNodes)."""
        with _refusals():
            running = [self._records.NodeState.RUNNING]
            array = self._gateway.array_of(self._records.NodeState, running)
            return [
                _node(str(each.getNodeId().toString()), each.getCapability())
                for each in self._yarn.getNodeReports(array)
            ]

    def check_queue(self, name: str) -> str:
        """Returns what a queue says about itself (getQueueInfo). Raises YarnError if it is not there, or stopped."""
        with _refusals():
            try:
                found = self._yarn.getQueueInfo(name)
            except Py4JJavaError:
                found = None
            if found is None:
                others = sorted(str(each.getQueueName()) for each in self._yarn.getAllQueues())
                raise YarnError(
                    f"YARN has no queue {name!r}, but {', '.join(others)}: choose one with -q or yarn.application.queue"
                )
            state = str(found.getQueueState().toString())
            if state != "RUNNING":
                raise YarnError(f"the queue {name} of YARN is {state}: choose another with -q, or start it")
            used = max(0.0, float(found.getCurrentCapacity()))
            return (
                f"queue {name}: {state}, {found.getCapacity():.0%} of the cluster, {used:.0%} of that in use"
            )

    def check_file_system(self) -> None:
        """Raises YarnError if HDFS takes no files."""
        with _refusals():
            is_hdfs = str(self._files.getScheme()) == "hdfs"
            if is_hdfs and self._files.isInSafeMode():
                raise YarnError(
                    f"HDFS at {self._files.getUri().toString()} is in safe mode and takes no files: wait until it has "
                    "left it, or run `hdfs dfsadmin -safemode leave`"
                )

    def create(self) -> Node:
        """Gets a new application id (getNewApplication); returns the largest container that YARN allocates."""
        with _refusals():
            self._created = self._yarn.createApplication()
            answer = self._created.getNewApplicationResponse()
            self.application_id = str(answer.getApplicationId().toString())
            return _node("", answer.getMaximumResourceCapability())

    @property
    def staging_directory(self) -> str:
        """The URI of the application's directory, below the user's home."""
        return str(self._staging().toString())

    def upload(self, sources: Mapping[str, Path]) -> dict[str, LocalResource]:
        """Copies files into the staging directory, which only the user may read. The name of each is also its name in
        the containers; an archive (.zip, .tar.gz, .tgz) is unpacked into a directory of its name without the ending.
        """
        uploaded: dict[str, LocalResource] = {}
        with _refusals():
            permission = self._hadoop.fs.permission.FsPermission
            directory = self._staging()
            self._files.mkdirs(directory)
            self._files.setPermission(directory, permission(_DIRECTORY_MODE))
            for name, source in sources.items():
                target = self._hadoop.fs.Path(directory, name)
                self._files.copyFromLocalFile(False, True, self._hadoop.fs.Path(str(source)), target)
                self._files.setPermission(target, permission(_FILE_MODE))
                status = self._files.getFileStatus(target)
                stem = _stem(name)
                uploaded[stem] = LocalResource(
                    uri=str(target.toUri().toString()),
                    size=int(status.getLen()),
                    timestamp=int(status.getModificationTime()),
                    type="FILE" if stem == name else "ARCHIVE",
                )
        return uploaded

    def submit(self, request: ApplicationRequest) -> None:
        """Submits the application (submitApplication); returns when YARN has accepted it."""
        records = self._records
        with _refusals():
            resources = self._gateway.jvm.java.util.HashMap()
            for name, resource in request.local_resources.items():
                resources.put(name, self._local_resource(resource))
            credentials = new_file_system_tokens(self._gateway, self._configuration)
            add_resource_manager_token(self._gateway, self._configuration, self._yarn, credentials)
            tokens = serialise(self._gateway, credentials)
            container = records.ContainerLaunchContext.newInstance(
                resources, dict(request.environment), [request.command], None, tokens, None
            )
            context = self._created.getApplicationSubmissionContext()
            context.setApplicationName(request.name)
            context.setApplicationType("tailrace")
            context.setQueue(request.queue)
            context.setMaxAppAttempts(request.attempts)
            context.setKeepContainersAcrossApplicationAttempts(True)
            context.setResource(records.Resource.newInstance(request.memory_mib, request.vcores))
            context.setAMContainerSpec(container)
            self._yarn.submitApplication(context)

    def report(self) -> ApplicationReport:
        """Returns what YARN says now (getApplicationReport)."""
        with _refusals():
            return self._report(self.application_id)

    def find_report(self, application_id: str) -> ApplicationReport | None:
        """Returns what YARN says about another application; None if it does not know it."""
        with _refusals():
            try:
                return self._report(application_id)
            except Py4JJavaError as error:
                if _name_of(error) == "ApplicationNotFoundException":
                    return None
                raise

    def _report(self, application_id: str) -> ApplicationReport:
        found = self._yarn.getApplicationReport(self._records.ApplicationId.fromString(application_id))
        aggregation = found.getLogAggregationStatus()
        return ApplicationReport(
            state=str(found.getYarnApplicationState().toString()),
            final_status=str(found.getFinalApplicationStatus().toString()),
            diagnostics=" ".join(str(found.getDiagnostics() or "").split()),
            host=str(found.getHost() or ""),
            port=int(found.getRpcPort()),
            tracking_url=str(found.getTrackingUrl() or ""),
            user=str(found.getUser()),
            log_aggregation="" if aggregation is None else str(aggregation.toString()),
        )

    def containers(self, application_id: str) -> list[RunningContainer]:
        """Returns the running containers of an application (getContainers)."""
        with _refusals():
            found = self._yarn.getApplicationReport(self._records.ApplicationId.fromString(application_id))
            attempt = found.getCurrentApplicationAttemptId()
            return [
                RunningContainer(str(each.getContainerId().toString()), _url(str(each.getNodeHttpAddress())))
                for each in self._yarn.getContainers(attempt)
            ]

    def write_aggregated_logs(self, application_id: str, user: str, target: Path) -> bool:
        """Writes the logs that NodeManagers have copied to HDFS into a file; returns False if there are none."""
        with _refusals():
            aggregation = self._hadoop.yarn.logaggregation
            application = self._records.ApplicationId.fromString(application_id)
            files = aggregation.filecontroller.LogAggregationFileControllerFactory(self._configuration)
            try:
                reader = files.getFileControllerForRead(application, user)
            except Py4JJavaError:
                # No directory of the application in that of the user.
                return False
            request = aggregation.ContainerLogsRequest()
            request.setAppId(application)
            request.setAppOwner(user)
            request.setAppFinished(True)
            request.setLogTypes(self._gateway.jvm.java.util.HashSet())
            request.setBytes(_ALL_BYTES)
            stream = self._gateway.jvm.java.io.PrintStream(str(target))
            try:
                return bool(reader.readAggregatedLogs(request, stream))
            finally:
                stream.close()

    def reports(self, until: Sequence[str], timeout_s: float) -> Iterator[ApplicationReport]:
        """Yields each report that differs from the one before, up to one with a state in `until`.

        Raises YarnError if the application fails or is killed, and that is not in `until`, or if it takes longer.
        """
        deadline, last = time.monotonic() + timeout_s, None
        while True:
            report = self.report()
            if report != last:
                yield report
            if report.state in until:
                return
            if report.state in ENDED:
                raise YarnError(
                    f"{self.application_id} is {report.state}: {report.diagnostics}; "
                    f"`tailrace logs --application {self.application_id}` shows its logs"
                )
            if time.monotonic() > deadline:
                raise YarnError(
                    f"{self.application_id} is still {report.state} after {timeout_s:.0f} s: {report.diagnostics}"
                )
            last = report
            time.sleep(_POLL_S)

    def discard(self) -> None:
        """Kills the application if it was submitted, and deletes its staging directory."""
        with contextlib.suppress(YarnError), _refusals():
            self._yarn.killApplication(self._id())
        with _refusals():
            self._files.delete(self._staging(), True)

    def staging_directories(self) -> list[StagingDirectory]:
        """Returns the user's staging directories on HDFS, also those of other clients."""
        with _refusals():
            parent = self._staging_parent()
            if not self._files.exists(parent):
                return []
            return [
                StagingDirectory(
                    str(each.getPath().getName()),
                    str(each.getPath().toString()),
                    int(each.getModificationTime()),
                )
                for each in self._files.listStatus(parent)
            ]

    def delete_staging_directory(self, application_id: str) -> str:
        """Deletes the staging directory of an application that has ended; returns its URI, empty if there is none."""
        with _refusals():
            directory = self._staging(application_id)
            return str(directory.toString()) if self._files.delete(directory, True) else ""

    def _id(self) -> Any:
        return self._records.ApplicationId.fromString(self.application_id)

    def _staging(self, application_id: str = "") -> Any:
        return self._hadoop.fs.Path(self._staging_parent(), application_id or self.application_id)

    def _staging_parent(self) -> Any:
        return self._hadoop.fs.Path(self._files.getHomeDirectory(), STAGING_PARENT)

    def _local_resource(self, resource: LocalResource) -> Any:
        records = self._records
        return records.LocalResource.newInstance(
            records.URL.fromURI(self._gateway.jvm.java.net.URI(resource.uri)),
            getattr(records.LocalResourceType, resource.type),
            getattr(records.LocalResourceVisibility, resource.visibility),
            resource.size,
            resource.timestamp,
        )


def _name_of(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


def _url(address: str) -> str:
    return address if "://" in address else f"http://{address}"


def _stem(name: str) -> str:
    for ending in (".zip", ".tar.gz", ".tgz"):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _node(name: str, capability: Any) -> Node:
    return Node(name, int(capability.getMemorySize()), int(capability.getVirtualCores()))


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Raises Hadoop's exceptions, and the end of the JVM, as YarnError."""
    try:
        yield
    except Py4JJavaError as error:
        raise YarnError(f"Hadoop refuses: {with_remedy(describe_java_error(error))}") from error
    except (Py4JError, OSError) as error:
        raise JvmEnded(f"the JVM with Hadoop's clients does not answer: {error or repr(error)}") from error
