"""An application in YARN, from this machine: it is brought up, and `cluster.json` of the home says where it is.

A session serves any job until it is stopped. A cluster of one job ends with it; its record stays, so that later
commands find its log. The next start in the home replaces the record of an application that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....infra.closing import Closeable
from ...configuration import Configuration
from ...configuration.options.kafka import KafkaUser
from ...yarn.application import ENDED, ApplicationReport
from ...yarn.deployment import Deployment, deploy
from ...yarn.job_file import JobFile
from ...yarn.jvm_application_client import JvmApplicationClient
from ..execution.program_run import Termination
from ..exit_codes import CommandFailure, ExitCode
from ..readers.kafka_check import check_kafka_reachable
from ..render.output import print_progress, print_result
from .cluster import LocalCluster
from .cluster_record import ClusterRecord, locked, read_record, remove_record, write_record

_SUCCEEDED: Final = "SUCCEEDED"


class YarnApplication(Closeable):
    """An application that runs, with the conversation by which it was brought up."""

    def __init__(self, configuration: Configuration, job: JobFile | None = None) -> None:
        """Brings it up, and records it. `job`: the one that it runs for; None: a session.

        Raises YarnError, CommandFailure; then nothing is left of it.
        """
        home = configuration.home
        if not configuration.bootstrap_servers:
            raise CommandFailure(
                ExitCode.USAGE,
                "a cluster in YARN needs a Kafka that the nodes reach: name it with --bootstrap-servers",
            )
        check_kafka_reachable(configuration)
        with locked(home):
            record = read_record(home)
            if record is not None and not record.yarn_application:
                raise _home_is_used(configuration, record)
            self._client = JvmApplicationClient.from_configuration(configuration)
            try:
                if record is not None and not remove_ended(self._client, configuration, record):
                    raise _home_is_used(configuration, record)
                self.deployment = deploy(configuration, self._client, print_progress, job)
                write_record(home, _record(self.deployment))
            except BaseException:
                self._client.close()
                raise
        self._home = home

    def close(self) -> None:
        """Ends the conversation. The application continues."""
        self._client.close()

    def wait(self) -> ApplicationReport:
        """Waits until the application has ended, and shows each change; returns the last report."""
        for report in self._client.reports(ENDED, float("inf")):
            if report.state != "RUNNING":
                print_progress(f"{report.state}: {report.final_status} {report.diagnostics}")
        return report

    def stop(self) -> ApplicationReport:
        """Shuts the cluster down, and waits until its application has ended."""
        found = self.deployment.configuration.as_user(KafkaUser.JOBMANAGER)
        local = LocalCluster.from_configuration(found, progress=print_progress)
        if local is not None:
            local.stop()
        return self.wait()


def remove_ended(client: JvmApplicationClient, configuration: Configuration, record: ClusterRecord) -> bool:
    """Removes the record and the staging directory of an application that has ended; returns False if it has not."""
    application_id = record.yarn_application
    report = client.find_report(application_id)
    if report is not None and report.state not in ENDED:
        return False
    how = (
        "YARN does not know it any more" if report is None else f"{report.state} {report.diagnostics}".strip()
    )
    left = client.delete_staging_directory(application_id)
    what = f"cluster.json and the staging directory {left}" if left else "cluster.json"
    print_progress(f"{application_id} has ended ({how}): removes what it left, {what}")
    remove_record(configuration.home)
    return True


def remove_if_ended(configuration: Configuration) -> bool:
    """As `remove_ended`, for the record of the home. Raises YarnError."""
    record = read_record(configuration.home)
    if record is None or not record.yarn_application:
        return False
    with (
        locked(configuration.home),
        JvmApplicationClient.from_configuration(configuration) as client,
    ):
        return remove_ended(client, configuration, record)


def run_session(configuration: Configuration, *, detached: bool) -> None:
    """Brings a session up; unless `detached`, waits until it ends, or ends it on Ctrl-C. Raises YarnError if it fails
    or is killed."""

    def follow(session: YarnApplication) -> None:
        try:
            report = _wait_or_stop(session)
        finally:
            remove_record(configuration.home)
        _check_success(session, report, ExitCode.PROCESS_FAILED)

    _run(configuration, None, follow, detached=detached)


def run_application(configuration: Configuration, job: JobFile, *, detached: bool) -> None:
    """Brings the cluster of a job up; unless `detached`, waits until both have ended, or cancels the job on Ctrl-C.

    Prints the job's id. Raises CommandFailure if the job does not finish.
    """

    def follow(application: YarnApplication) -> None:
        _check_success(application, _wait_or_stop(application), ExitCode.JOB)

    _run(configuration, job, follow, detached=detached)


def _run(
    configuration: Configuration,
    job: JobFile | None,
    follow: Callable[[YarnApplication], None],
    *,
    detached: bool,
) -> None:
    termination = Termination()
    try:
        application = YarnApplication(configuration, job)
    finally:
        termination.close()
    with application:
        found = application.deployment
        line = f"{found.application_id} runs the cluster {found.cluster_id}: {found.tracking_url}"
        if job is None:
            print_result(line)
        else:
            print_progress(line)
            print_result(job.job_id)
        if not detached:
            follow(application)


def _wait_or_stop(application: YarnApplication) -> ApplicationReport:
    try:
        return application.wait()
    except KeyboardInterrupt:
        return application.stop()


def _check_success(application: YarnApplication, report: ApplicationReport, code: ExitCode) -> None:
    if report.final_status != _SUCCEEDED:
        application_id = application.deployment.application_id
        raise CommandFailure(
            code,
            f"{application_id} has ended with {report.final_status}: {report.diagnostics}; "
            f"`tailrace logs --application {application_id}` shows its logs",
        )


def _home_is_used(configuration: Configuration, record: ClusterRecord) -> CommandFailure:
    return CommandFailure(
        ExitCode.USAGE,
        f"{configuration.home} has the cluster {record.cluster_id} already: end it with `tailrace cluster stop`, or "
        "give another --home",
    )


def _record(deployment: Deployment) -> ClusterRecord:
    configuration = deployment.configuration
    return ClusterRecord(
        cluster_id=deployment.cluster_id,
        bootstrap_servers=configuration.bootstrap_servers,
        embedded_kafka=False,
        configuration={setting.key: setting.text for setting in configuration.settings()},
        yarn_application=deployment.application_id,
    )
