"""A cluster with several masters over real servers. Its jobs continue while a test injects faults."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from kazoo.client import KazooClient

from tailrace.infra.zookeeper_ensemble import ZooKeeperEnsemble
from tailrace.schemas.types import JobStatus
from tailrace.services.client import Client
from tailrace.services.configuration import Configuration
from tailrace.services.core.role import DISPATCHER
from tailrace.services.election.paths import Paths, in_order
from tailrace.services.election.settings import ZooKeeperSettings
from tailrace.services.election.zookeeper_candidates import ZooKeeperCandidatesReader
from tailrace.services.log.cluster_topics import create_cluster_topics
from tailrace.services.log.factory import create_admin_client

from .job_graphs import AT_ONCE, LASTING, graph, program
from .leader_history import LeaderHistory, LeaderTerm
from .masters import Master, Masters
from .simulated_task_executors import SimulatedTaskExecutors

_BETWEEN_JOBS_S = 0.4


class HaCluster:
    """Three masters, two TaskExecutors of `SLOTS` slots, an ensemble of three ZooKeepers. A context manager."""

    TASK_EXECUTORS = 2
    SLOTS = 4
    SESSION_S = 2.0

    def __init__(
        self,
        kafka: str,
        cluster_id: str,
        home: Path,
        values: Mapping[str, str] | None = None,
        masters: int = 3,
    ) -> None:
        self._stack = contextlib.ExitStack()
        try:
            self.zookeeper = self._stack.enter_context(ZooKeeperEnsemble(3, heap="96m"))
            servers = [server.address for server in self.zookeeper.servers]
            shared = {
                "cluster.id": cluster_id,
                "bootstrap.servers": kafka,
                "high-availability.zookeeper.client.session-timeout": f"{self.SESSION_S:g} s",
                "high-availability.zookeeper.client.connection-timeout": "1 s",
                "heartbeat.interval": "1 s",
                "heartbeat.timeout": "20 s",
                **(values or {}),
            }
            self.configuration = Configuration(
                {
                    **shared,
                    "high-availability.type": "zookeeper",
                    "high-availability.zookeeper.quorum": ",".join(servers),
                    "home": str(home),
                }
            )
            create_cluster_topics(
                create_admin_client(self.configuration), self.configuration.kafka, cluster_id
            )
            self.masters = self._stack.enter_context(Masters(masters, shared, kafka, servers, home))
            self.workers = self._stack.enter_context(
                SimulatedTaskExecutors(self.configuration, self.TASK_EXECUTORS, self.SLOTS)
            )
            self.story = self._stack.enter_context(contextlib.closing(LeaderHistory(self.configuration)))
            self.client = self._stack.enter_context(contextlib.closing(Client(self.configuration)))
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> HaCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restore_all(self) -> None:
        """Heals all faults; returns when every master is a candidate and a job has run to its end."""
        for master in self.masters.all:
            master.resume()
            master.network.heal()
        self.masters.start()
        # Not to the end of the ensemble's sessions: those of the dead count until then.
        addresses = {master.address for master in self.masters.all}
        with ZooKeeperCandidatesReader(
            ZooKeeperSettings.from_configuration(self.configuration), timeout_s=60
        ) as reader:
            self.story.until(lambda: set(reader.candidates()) == addresses, "election of all masters")
        self.measure_job_seconds()

    def run_for(self, seconds: float) -> None:
        """Reads the log for so many seconds: an outage has to last."""
        until = time.monotonic() + seconds
        self.story.until(lambda: time.monotonic() > until, "end of the outage", seconds + 60)

    def revoke(self) -> None:
        """Removes in ZooKeeper the node with which a master leads."""
        settings = ZooKeeperSettings.from_configuration(self.configuration)
        path = Paths.from_settings(settings).latch
        zookeeper = KazooClient(settings.quorum, timeout=60.0)
        zookeeper.start(timeout=60)
        try:
            zookeeper.delete(f"{path}/{in_order(zookeeper.get_children(path))[0]}")
        finally:
            zookeeper.stop()
            zookeeper.close()

    def measure_job_seconds(self, within_s: float = 60.0) -> float:
        """Runs a job to its end and returns the seconds that this takes."""
        start = time.monotonic()
        self.ends(self.submit(AT_ONCE), within_s=within_s)
        return time.monotonic() - start

    def submit(self, name: str = LASTING, parallelism: int = 1) -> str:
        """Submits a job and returns its id."""
        job_id = f"{name.replace(' ', '-')}-{secrets.token_hex(4)}"
        self.client.submit(graph(name, parallelism), job_id=job_id)
        return job_id

    def submit_program(self, lasts_s: float = SESSION_S) -> str:
        """Submits a program that builds its graph for so long; the job finishes at once."""
        job_id = f"program-{secrets.token_hex(4)}"
        self.client.submit(program(lasts_s), job_id=job_id)
        return job_id

    def runs(self, job_id: str, tasks: int = 1) -> None:
        """Waits until all tasks of a job run and its JobMaster has reported that."""
        job = self.story.job(job_id)
        self.story.until(
            lambda: len(job.running) == tasks and job.status is JobStatus.RUNNING, f"{job_id} that runs"
        )

    def ends(self, job_id: str, status: JobStatus = JobStatus.FINISHED, within_s: float = 60.0) -> None:
        """Waits for the end of a job, and checks that the job and each of its tasks started once."""
        job = self.story.job(job_id)
        self.story.until(lambda: job.ended is not None, f"end of {job_id}", within_s)
        assert job.ended is status
        assert len(job.starts) == 1
        assert set(job.attempts.values()) == {0}, f"tasks of {job_id} were restarted"

    def finish(self, job_id: str) -> None:
        """Ends a job that runs until it is told to finish."""
        self.workers.finish(job_id)
        self.ends(job_id)

    @contextlib.contextmanager
    def load(self) -> Iterator[list[str]]:
        """Submits jobs throughout the block; at the end all of them have ended."""
        over, jobs = threading.Event(), list[str]()

        def submit() -> None:
            while not over.wait(_BETWEEN_JOBS_S):
                jobs.append(self.submit(AT_ONCE))

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        try:
            yield jobs
        finally:
            over.set()
            thread.join()
        assert jobs
        for job_id in jobs:
            self.ends(job_id)

    @property
    def reign(self) -> LeaderTerm:
        """Returns the current term of the Dispatcher's leader, according to the log."""
        self.story.catch_up()
        reign = self.story.leader()
        assert reign is not None
        return reign

    @property
    def leader(self) -> Master:
        """Returns the master that leads the Dispatcher."""
        return self.masters.at(self.reign.address)

    def elected_after(self, reign: LeaderTerm, role: str = DISPATCHER) -> LeaderTerm:
        """Waits for the next leader's first event, and returns that leader."""
        story = self.story

        def found() -> LeaderTerm | None:
            latest = story.leader(role)
            return latest if latest is not None and latest.epoch > reign.epoch else None

        story.until(found, f"leader of {role} after {reign.address}")
        successor = found()
        assert successor is not None
        return successor
