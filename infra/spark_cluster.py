"""A standalone Spark cluster on this machine, for tests: Spark's own Master and Workers, from pyspark's jars.

All ports are free ones of the loopback address. Processes do not outlive their owner. The executors that a Worker
starts end with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final, Self

import psutil

from .embedded_server import Server
from .jars import pyspark_jars_dir
from .ports import HOST, ReservedPort
from .prerequisites import find_java
from .processes import OwnedProcess

START_TIMEOUT_S: Final = 90.0
RECONNECT_TIMEOUT_S: Final = 180.0
"""A Worker tries to reach its Master every 10 s at first, and every minute later."""
STOP_TIMEOUT_S: Final = 10.0
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class SparkClusterUnavailable(Exception):
    """The cluster did not start; the message gives the location of the log."""


class SparkCluster(Server):
    """A Master and some Workers. As a context manager it starts on entry and stops on exit."""

    def __init__(self, workers: int = 2, *, cores: int = 16, memory: str = "1g") -> None:
        """`cores` and `memory` are what each Worker offers: a task of a query needs a core, but rarely all of it."""
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-spark-"))
        self._workers, self._cores, self._memory = workers, cores, memory
        self._processes: list[OwnedProcess] = []
        self._port = 0

    @property
    def master(self) -> str:
        """The value for `spark.master`."""
        return f"spark://{HOST}:{self._port}"

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the Workers."""
        return [process.pid for process in self._processes[1:]]

    @property
    def master_pid(self) -> int:
        """The process id of the Master."""
        return self._processes[0].pid

    def executors(self, worker: int | None = None) -> list[psutil.Process]:
        """The executors that run now, those of a killed Worker too; of one Worker, by its number, or of all."""
        directory = self.directory if worker is None else self._work_directory(worker)
        return [process for process in psutil.process_iter() if _is_executor(process, directory)]

    def kill_worker(self, worker: int) -> None:
        """Sends SIGKILL to a Worker, by its number. Its executors end by themselves, as they miss it."""
        self._processes[1 + worker].kill()

    def kill_master(self) -> None:
        """Sends SIGKILL to the Master."""
        self._processes[0].kill()

    def restart_master(self) -> None:
        """Starts another Master at the address of the killed one, without its state; returns when all Workers that
        run are registered there."""
        workers = [process for process in self._processes[1:] if process.poll() is None]
        (self.directory / "master.log").unlink()
        self._processes = [self._processes[0], *workers]
        self._processes[0] = self._launch("master", _MASTER, *self._master_arguments())
        self._wait("master", "Registering worker", len(workers), RECONNECT_TIMEOUT_S)

    def start(self) -> Self:
        """Starts the cluster, and returns when all Workers are registered. Raises SparkClusterUnavailable."""
        port = ReservedPort()
        self._port = port.number
        self._processes.append(self._launch("master", _MASTER, *self._master_arguments()))
        self._wait("master", "New state: ALIVE", 1)
        port.release()
        for number in range(self._workers):
            offers = ("--cores", str(self._cores), "--memory", self._memory)
            work = ("--work-dir", str(self._work_directory(number)))
            self._processes.append(
                self._launch(
                    f"worker-{number}",
                    _WORKER,
                    "--host",
                    HOST,
                    "--webui-port",
                    "0",
                    *offers,
                    *work,
                    self.master,
                )
            )
        self._wait("master", "Registering worker", self._workers)
        return self

    def stop(self) -> None:
        """Stops all processes."""
        executors = self.executors() if self._processes else []
        for process in reversed(self._processes):
            process.stop(STOP_TIMEOUT_S)
        for executor in psutil.wait_procs(executors, STOP_TIMEOUT_S)[1]:
            executor.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def _work_directory(self, worker: int) -> Path:
        return self.directory / f"work-{worker}"

    def _master_arguments(self) -> list[str]:
        return ["--host", HOST, "--port", str(self._port), "--webui-port", "0"]

    def _launch(self, name: str, main: str, *arguments: str) -> OwnedProcess:
        home = pyspark_jars_dir().parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(Path(find_java()).resolve().parent.parent),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        # The script replaces itself by the JVM, so the process is Spark's.
        command = [str(home / "bin" / "spark-class"), main, *arguments]
        return OwnedProcess(command, log=self.directory / f"{name}.log", cwd=self.directory, env=environment)

    def _wait(self, name: str, text: str, times: int, timeout_s: float = START_TIMEOUT_S) -> None:
        log = self.directory / f"{name}.log"
        deadline = time.monotonic() + timeout_s
        while not log.exists() or log.read_text("utf-8", "replace").count(text) < times:
            ended = [process for process in self._processes if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise SparkClusterUnavailable(f"the Spark cluster did not start, see {log}")
            time.sleep(0.05)


def _is_executor(process: psutil.Process, directory: Path) -> bool:
    with contextlib.suppress(psutil.Error):  # it has ended meanwhile, or belongs to somebody else
        return Path(process.cwd()).is_relative_to(directory) and any(
            _EXECUTOR in part for part in process.cmdline()
        )
    return False
