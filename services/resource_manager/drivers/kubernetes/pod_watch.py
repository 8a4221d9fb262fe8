"""Follows the pods of a cluster: one list, then a watch from its version on, and a list again from time to time.

One thread lists and watches, so what it tells is in the order of the API server. A watch ends by itself after a minute,
and the next one continues at the last version. A list follows if the server does not have that version any more (410
Gone), after a failure, and at each resync: what happened meanwhile is in it, and a pod that is missing is gone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, Protocol

from .....infra import threads
from .....infra.logging_setup import logger
from ....kubernetes.api_client import ApiFailure
from .pod_api import Pod, PodApi

_log = logger(__name__)
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 10.0


class PodListener(Protocol):
    """Gets what a PodWatch sees, on its thread."""

    def on_list_start(self) -> None:
        """Called before the pods are listed."""
        ...

    def on_list(self, pods: Sequence[Pod]) -> None:
        """All pods, as of now."""
        ...

    def on_pod(self, pod: Pod) -> None:
        """A pod is new, or has changed."""
        ...

    def on_deletion(self, pod: Pod) -> None:
        """A pod is gone; it was last like this."""
        ...


class PodWatch:
    """Follows the pods with some labels until `close`."""

    def __init__(self, api: PodApi, selector: str, listener: PodListener, *, resync_s: float) -> None:
        self._api = api
        self._selector = selector
        self._listener = listener
        self._resync_s = resync_s
        self._closed = threading.Event()
        self._wants_list = threading.Event()
        self._changed = threading.Condition()
        self._is_listed = False
        self._failure: ApiFailure | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts following; idempotent."""
        with self._changed:
            if self._thread is None and not self._closed.is_set():
                self._thread = threads.Thread(target=self._run, name="pod watch")
                self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Waits until the pods have been listed. Raises ApiFailure if that failed, or takes too long."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_listed or self._failure is not None, timeout_s)
            if self._is_listed:
                return
            raise self._failure or ApiFailure(
                f"the API server of Kubernetes lists no pods within {timeout_s:g} s"
            )

    def list_again(self) -> None:
        """Lists the pods soon. Not on the thread of the watch."""
        self._wants_list.set()
        self._api.stop_watch()

    def close(self) -> None:
        """Stops following."""
        self._closed.set()
        self._api.stop_watch()

    def _run(self) -> None:
        version, listed_at, pause_s = "", 0.0, _FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                is_due = self._wants_list.is_set() or time.monotonic() - listed_at >= self._resync_s
                if not version or is_due:
                    self._wants_list.clear()
                    self._listener.on_list_start()
                    pods, version = self._api.list(self._selector)
                    listed_at = time.monotonic()
                    self._listener.on_list(pods)
                    self._tell(None)
                version = self._follow(version, listed_at + self._resync_s)
                pause_s = _FIRST_PAUSE_S
            except ApiFailure as failure:
                version = ""
                if self._closed.is_set() or self._wants_list.is_set():
                    continue
                if failure.status == HTTPStatus.GONE:
                    _log.info(
                        "lists all pods again: the API server has forgotten what the watch had seen last"
                    )
                else:
                    _log.warning("the pods cannot be followed; tries again", reason=str(failure))
                    self._tell(failure)
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _follow(self, version: str, until: float) -> str:
        """Tells the events after a version, until the watch ends; returns the last version."""
        for kind, pod in self._api.watch(self._selector, version, until - time.monotonic()):
            if self._closed.is_set():
                break
            version = str(pod["metadata"].get("resourceVersion") or version)
            match kind:
                case "ADDED" | "MODIFIED":
                    self._listener.on_pod(pod)
                case "DELETED":
                    self._listener.on_deletion(pod)
                case _:
                    # A bookmark has only the version.
                    pass
            if self._wants_list.is_set() or time.monotonic() >= until:
                break
        return version

    def _tell(self, failure: ApiFailure | None) -> None:
        with self._changed:
            self._is_listed = self._is_listed or failure is None
            self._failure = failure
            self._changed.notify_all()
