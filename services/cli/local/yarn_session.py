"""A session in YARN, from this machine: it is brought up, and `cluster.json` of the home says where it is."""

from __future__ import annotations

from ....infra.closing import Closeable
from ...configuration import Configuration
from ...configuration.options.kafka import KafkaUser
from ...yarn.deployment import Deployment, deploy
from ...yarn.jvm_application_client import JvmApplicationClient
from ..execution.program_run import Termination
from ..exit_codes import CommandFailure, ExitCode
from ..readers.kafka_check import check_kafka_reachable
from ..render.output import print_progress, print_result
from .cluster import LocalCluster
from .cluster_record import ClusterRecord, locked, read_record, remove_record, write_record


class YarnSession(Closeable):
    """A session that runs, with the conversation by which it was brought up."""

    def __init__(self, configuration: Configuration) -> None:
        """Brings it up, and records it. Raises YarnError, CommandFailure; then nothing is left of it."""
        home = configuration.home
        if not configuration.bootstrap_servers:
            raise CommandFailure(
                ExitCode.USAGE,
                "a cluster in YARN needs a Kafka that the nodes reach: name it with --bootstrap-servers",
            )
        check_kafka_reachable(configuration)
        with locked(home):
            record = read_record(home)
            if record is not None:
                raise CommandFailure(
                    ExitCode.USAGE,
                    f"{home} has the cluster {record.cluster_id} already: end it with `tailrace cluster stop`, or give "
                    "another --home",
                )
            self._client = JvmApplicationClient(log=home / "hadoop-client.log")
            try:
                self.deployment = deploy(configuration, self._client, print_progress)
                write_record(home, _record(self.deployment))
            except BaseException:
                self._client.close()
                raise
        self._home = home

    def close(self) -> None:
        """Ends the conversation. The session continues."""
        self._client.close()

    def wait(self) -> None:
        """Waits until the application has ended; shows each change. Raises YarnError if it fails or is killed."""
        for report in self._client.reports(("FINISHED",), float("inf")):
            if report.state != "RUNNING":
                print_progress(f"{report.state}: {report.final_status} {report.diagnostics}")

    def stop(self) -> None:
        """Shuts the cluster down, and waits until its application has ended."""
        found = self.deployment.configuration.as_user(KafkaUser.JOBMANAGER)
        local = LocalCluster.from_configuration(found, progress=print_progress)
        if local is not None:
            local.stop()
        self.wait()


def run_session(configuration: Configuration, *, detached: bool) -> None:
    """Brings a session up; unless `detached`, waits until it ends, or ends it on Ctrl-C."""
    termination = Termination()
    try:
        session = YarnSession(configuration)
    finally:
        termination.close()
    with session:
        found = session.deployment
        print_result(f"{found.application_id} runs the cluster {found.cluster_id}: {found.tracking_url}")
        if detached:
            return
        try:
            session.wait()
        except KeyboardInterrupt:
            session.stop()
        finally:
            remove_record(configuration.home)


def _record(deployment: Deployment) -> ClusterRecord:
    configuration = deployment.configuration
    return ClusterRecord(
        cluster_id=deployment.cluster_id,
        bootstrap_servers=configuration.bootstrap_servers,
        embedded_kafka=False,
        configuration={setting.key: setting.text for setting in configuration.settings()},
        yarn_application=deployment.application_id,
    )
