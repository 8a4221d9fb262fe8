"""A cluster of one job in a YARN of two NodeManagers, and what its log says."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from _masters import Follower

from tailrace.infra.kafka import EmbeddedKafka
from tailrace.infra.yarn import EmbeddedYarn
from tailrace.schemas.types import EntryPoint, PythonFile
from tailrace.services.configuration import Configuration
from tailrace.services.yarn.deployment import deploy
from tailrace.services.yarn.job_file import JobFile
from tailrace.services.yarn.jvm_application_client import JvmApplicationClient

PROGRAM = b"""
from tailrace import StreamExecutionEnvironment
environment = StreamExecutionEnvironment.get_execution_environment()
environment.generate(str, rate_per_second=1).print()
environment.execute("one task")
"""
OPTIONS = {
    "jobmanager.memory.process.size": "1g",
    "taskmanager.memory.process.size": "1g",
    "taskmanager.numberOfTaskSlots": "1",
    # The start of Spark is not YARN's.
    "taskmanager.spark.start-on-demand": "true",
    "slot.request.timeout": "5 min",
    "rest.bind-port": "0",
    "yarn.application-attempts": "20",
    "yarn.python-executable": sys.executable,
}
PATIENCE_S = 120.0
_LOOK_S = 0.01


class Application:
    """An application that was submitted at `submitted`, in seconds since the epoch; `checked_s` before that was for
    checks and the upload."""

    def __init__(self, kafka: EmbeddedKafka, yarn: EmbeddedYarn, job: JobFile, home: Path) -> None:
        given = {**OPTIONS, "bootstrap.servers": kafka.bootstrap_servers, "home": str(home)}
        self._yarn = yarn
        # It is shipped to the containers, too.
        os.environ["HADOOP_CONF_DIR"] = str(yarn.configuration_dir)
        self._client = JvmApplicationClient(log=home / "client.log")
        self.submitted = began = time.time()

        def say(line: str) -> None:
            if line.startswith("staging directory"):
                self.submitted = time.time()

        deployment = deploy(Configuration(given), self._client, say, job)
        self.running_s = time.time() - self.submitted
        self.checked_s = self.submitted - began
        self.configuration = deployment.configuration
        self.follower = Follower(self, from_start=True)  # type: ignore[arg-type]

    def processes(self) -> dict[str, psutil.Process]:
        """Returns the Python processes that containers were started for: container id -> process."""
        found: dict[str, psutil.Process] = {}
        for process in self._yarn.containers():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:3] == ["-P", "-m"]:
                    found.setdefault(process.environ()["CONTAINER_ID"], process)
        return found

    def close(self) -> None:
        """Kills the application, and waits until its containers are gone."""
        self.follower.close()
        self._client.discard()
        self._client.close()
        deadline = time.monotonic() + PATIENCE_S
        while self._yarn.containers() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


@contextlib.contextmanager
def running_application(kafka: EmbeddedKafka, yarn: EmbeddedYarn, job: JobFile) -> Iterator[Application]:
    """Yields an application whose ApplicationMaster is RUNNING; kills it at the end."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as home:
        application = Application(kafka, yarn, job, Path(home))
        try:
            yield application
        finally:
            application.close()


def one_task(name: str) -> JobFile:
    """Returns a job whose task runs until the job is cancelled."""
    entry_point = EntryPoint(
        target="tailrace.pipelines.api.build:run_shipped_file",
        arguments=("one_task.py",),
        python_files=(PythonFile(path="one_task.py", content=PROGRAM),),
    )
    return JobFile(job_id=name, entry_point=entry_point, parallelism=1)
