"""A node for the pods at the mocked API server: it starts the process of each pod, and reports what becomes of it.

It does what a kubelet does for the driver: phase, state of the container, SIGTERM when the pod is deleted. The pod is
gone when its process has ended: a finalizer keeps it until then, because the mock knows no grace period. There are no
images, volumes and limits; a test says what a node would: an eviction, or a container that needed too much memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from kubernetes_api import KubernetesApi
from polling import TIMEOUT_S

_CONTAINER = "taskexecutor"
_FINALIZER = "tailrace.test/kubelet"
_POLL_S = 0.1
_IN_POD = (
    "unshare",
    *(() if os.geteuid() == 0 else ("--map-root-user",)),
    *("--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
    *("sh", "-c", 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"', "sh"),
)
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class PodProcess:
    """The process of a pod: process 1 on a host of the pod's name, with /etc/hosts of its own. All that it starts ends
    with it."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], home: Path
    ) -> None:
        """Runs the command line of tailrace with these arguments; its log is in `home`."""
        hosts = home / f"{name}.hosts"
        hosts.write_text(f"127.0.0.1 localhost {name}\n")
        own = {key: value for key, value in os.environ.items() if not key.startswith("TAILRACE_")}
        for key in ("TAILRACE_CACHE_DIR", "TAILRACE_IVY_SETTINGS"):
            if key in os.environ:
                own[key] = os.environ[key]
        with (home / f"{name}.log").open("ab") as log:
            self._outer = subprocess.Popen(
                [*_IN_POD, name, str(hosts), sys.executable, "-m", "tailrace.services.cli", *arguments],
                env={**own, **environment, "TAILRACE_HOME": str(home / name)},
                cwd=home,
                stdout=log,
                stderr=log,
            )

    def poll(self) -> int | None:
        """Returns the exit code; None while it runs."""
        return self._outer.poll()

    def wait(self) -> int:
        """Waits for its end; returns the exit code."""
        return self._outer.wait(TIMEOUT_S)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process of the pod, if it runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._outer.pid).children():
                process.send_signal(number)

    def close(self) -> None:
        """Kills it."""
        self.send(signal.SIGKILL)
        self._outer.kill()
        self._outer.wait()


class Kubelet:
    """Runs pods until it is closed. A context manager."""

    def __init__(self, api: KubernetesApi, home: Path) -> None:
        self._api = api
        self._home = home
        self._processes: dict[str, PodProcess] = {}
        """By the uid of the pod."""
        self._reasons: dict[str, str] = {}
        self._terminating: set[str] = set()
        self._ended: set[str] = set()
        self._closing = threading.Event()
        self.absent_image = ""
        """An image that cannot be pulled."""
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()
        for process in self._processes.values():
            process.close()

    def kill(self, name: str, reason: str = "OOMKilled") -> None:
        """Sends SIGKILL to a pod's process, as for this reason."""
        uid = self._api.pods()[name]["metadata"]["uid"]
        self._reasons[uid] = reason
        self._processes[uid].send(signal.SIGKILL)

    def evict(self, name: str) -> None:
        """Evicts a pod, as the drain of a node does: its process gets SIGTERM."""
        self._set_status(name, {"phase": "Running", "conditions": [_EVICTED]})
        self._api.delete(name)

    def _run(self) -> None:
        while not self._closing.wait(_POLL_S):
            for pod in self._api.pods().values():
                self._look_after(pod)

    def _look_after(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        uid = metadata["uid"]
        process, is_deleted = self._processes.get(uid), "deletionTimestamp" in metadata
        if process is None and not is_deleted:
            # If somebody else has just written the pod, the next look finds that.
            is_kept = _FINALIZER in metadata.get("finalizers", ()) or self._keep(pod, [_FINALIZER])
            if is_kept and not self._is_kept_waiting(pod):
                self._start(uid, pod)
            return
        code = None if process is None else process.poll()
        if code is not None and uid not in self._ended:
            self._ended.add(uid)
            self._report_end(pod, code)
        elif is_deleted and (process is None or code is not None):
            self._keep(pod, [])
        elif process is not None and is_deleted and uid not in self._terminating:
            self._terminating.add(uid)
            process.send(signal.SIGTERM)

    def _keep(self, pod: Mapping[str, Any], finalizers: Sequence[str]) -> bool:
        return self._api.write({**pod, "metadata": {**pod["metadata"], "finalizers": finalizers}})

    def _is_kept_waiting(self, pod: Mapping[str, Any]) -> bool:
        (container,) = pod["spec"]["containers"]
        if container["image"] != self.absent_image:
            return False
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{self.absent_image}"'}
        status = {"name": _CONTAINER, "state": {"waiting": waiting}}
        if not pod.get("status", {}).get("containerStatuses"):
            self._set_status(pod["metadata"]["name"], {"phase": "Pending", "containerStatuses": [status]})
        return True

    def _start(self, uid: str, pod: Mapping[str, Any]) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        variables = {each["name"]: each.get("value", "127.0.0.1") for each in container["env"]}
        environment = {key: value.replace("$(POD_IP)", "127.0.0.1") for key, value in variables.items()}
        self._processes[uid] = PodProcess(name, container["args"], environment, self._home)
        self._set_status(name, {"phase": "Running", "podIP": "127.0.0.1"})

    def _report_end(self, pod: Mapping[str, Any], code: int) -> None:
        reason = self._reasons.get(pod["metadata"]["uid"], "Completed" if code == 0 else "Error")
        ended = {"reason": reason, "exitCode": code}
        status = {
            **pod.get("status", {}),
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": _CONTAINER, "state": {"terminated": ended}}],
        }
        self._set_status(pod["metadata"]["name"], status)

    def _set_status(self, name: str, status: Mapping[str, Any]) -> None:
        # The pod may be gone meanwhile.
        with contextlib.suppress(AssertionError):
            self._api.set_status(name, status)
