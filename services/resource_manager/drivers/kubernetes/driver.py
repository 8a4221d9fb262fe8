"""The driver of `resourcemanager.worker-driver: kubernetes`: a pod for each worker.

A pod outlives the jobmanager that started it. Its labels name the cluster and the resource id, so a successor finds it
and takes it over. What becomes of pods is known from the API server only: a watch reports ends, evictions and pods that
cannot start. A pod that has ended, or cannot start, is deleted once its end is reported: nothing is left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final

from .....infra.config.option_types import SECOND
from .....infra.logging_setup import logger
from .....schemas.types import ResourceProfile
from ....configuration import Configuration
from ....configuration.options.kubernetes import OWNER, RESYNC_INTERVAL
from ....kubernetes.api_client import ApiFailure, Place
from ....kubernetes.names import selector_of
from ..driver import OnExit, PlatformUnavailable, WorkerNotStarted
from .pod_api import Pod, PodApi
from .pod_manifest import (
    RESOURCE_ID_LABEL,
    pod_manifest,
    pod_name,
    read_template,
    resource_id_of,
    worker_labels,
)
from .pod_status import describe_deletion, find_end, find_obstacle, is_terminating, name_of
from .pod_watch import PodWatch

LIST_TIMEOUT_S: Final = 40.0
_log = logger(__name__)


class KubernetesDriver:
    """Starts and stops pods. `api`: another one for tests."""

    def __init__(self, configuration: Configuration, on_exit: OnExit, api: PodApi | None = None) -> None:
        self._configuration = configuration
        self._on_exit = on_exit
        self._cluster_id = configuration.cluster_id
        self._api = api or PodApi(Place.from_configuration(configuration))
        self._watch = PodWatch(
            self._api,
            selector_of(worker_labels(self._cluster_id)),
            self,
            resync_s=configuration.get(RESYNC_INTERVAL) / SECOND,
        )
        self._owner: Pod | None = None
        self._lock = threading.Lock()
        self._seen: dict[str, Pod] = {}
        """The pods by resource id, as the watch saw them last."""
        self._started: set[str] = set()
        """Workers whose pods were created, and which the watch has not seen yet."""
        self._started_before: set[str] = set()
        """Those that were created before the pods are listed."""
        self._ended: set[str] = set()
        """Workers in `_seen` whose end was reported."""
        self._stopping: dict[str, str] = {}
        """Workers whose pods are to be deleted -> why."""

    def start(
        self, resource_id: str, number_of_slots: int, slot_profile: ResourceProfile | None = None
    ) -> str:
        self._watch.start()
        template = read_template(self._configuration)
        try:
            pod = pod_manifest(
                self._configuration, template, self._find_owner(), resource_id, number_of_slots, slot_profile
            )
            self._create(resource_id, pod)
        except ApiFailure as failure:
            raise WorkerNotStarted(str(failure)) from None
        _log.info("pod created", resource_id=resource_id, pod=name_of(pod))
        return self._address(resource_id)

    def stop(self, resource_id: str, reason: str) -> bool:
        self._watch.start()
        with self._lock:
            if resource_id in self._ended:
                return False
            seen = self._seen.get(resource_id)
            if seen is None or not is_terminating(seen):
                # Otherwise somebody else has deleted it: that is the reason of its end.
                self._stopping.setdefault(resource_id, reason)
        try:
            exists = self._api.delete(pod_name(self._cluster_id, resource_id))
        except ApiFailure as failure:
            # The watch tries again as long as it sees the pod: none may stay that nobody wants.
            _log.warning("a pod cannot be deleted; tries again", resource_id=resource_id, reason=str(failure))
            self._watch.list_again()
            return True
        with self._lock:
            is_expected = resource_id in self._seen or resource_id in self._started
            if not exists and not is_expected:
                self._stopping.pop(resource_id, None)
        return exists or is_expected

    def survivors(self) -> Mapping[str, str]:
        self._watch.start()
        try:
            self._watch.wait(LIST_TIMEOUT_S)
        except ApiFailure as failure:
            raise PlatformUnavailable(str(failure)) from None
        with self._lock:
            return {
                resource_id: self._address(resource_id) for resource_id in self._seen.keys() - self._ended
            }

    def close(self) -> None:
        self._watch.close()

    def on_list_start(self) -> None:
        """Remembers which workers the list must have (PodListener)."""
        with self._lock:
            self._started_before = set(self._started)

    def on_list(self, pods: Sequence[Pod]) -> None:
        """Compares all pods with those that were seen (PodListener)."""
        listed = {resource_id_of(pod) for pod in pods}
        with self._lock:
            gone = [pod for resource_id, pod in self._seen.items() if resource_id not in listed]
            unseen = sorted((self._started_before & self._started) - listed)
        for pod in gone:
            self.on_deletion(pod)
        for resource_id in unseen:
            # It came and went while nobody watched.
            self.on_deletion(self._unseen_pod(resource_id))
        for pod in pods:
            self.on_pod(pod)

    def on_pod(self, pod: Pod) -> None:
        """Reports a pod that has ended or cannot start, and deletes it (PodListener)."""
        resource_id = resource_id_of(pod)
        if resource_id is None:
            return
        with self._lock:
            asked = self._stopping.get(resource_id)
        end = find_end(pod, asked) or (None if is_terminating(pod) else find_obstacle(pod))
        with self._lock:
            self._seen[resource_id] = pod
            self._started.discard(resource_id)
            is_news = end is not None and resource_id not in self._ended
            if is_news:
                self._ended.add(resource_id)
            is_unwanted = resource_id in self._ended or resource_id in self._stopping
        if is_news and end is not None:
            _log.warning("a pod has ended", resource_id=resource_id, reason=end)
            self._on_exit(resource_id, end)
        if is_unwanted and not is_terminating(pod):
            self._delete(pod)

    def on_deletion(self, pod: Pod) -> None:
        """Reports the end of a pod that is gone, unless that is known (PodListener)."""
        resource_id = resource_id_of(pod)
        if resource_id is None:
            return
        with self._lock:
            before = self._seen.pop(resource_id, None)
            was_expected = before is not None or resource_id in self._started
            self._started.discard(resource_id)
            asked = self._stopping.pop(resource_id, None)
            is_news = was_expected and resource_id not in self._ended
            self._ended.discard(resource_id)
        if is_news:
            self._on_exit(resource_id, describe_deletion(pod, asked))

    def _create(self, resource_id: str, pod: Pod) -> None:
        with self._lock:
            self._started.add(resource_id)
        try:
            try:
                self._api.create(pod)
            except ApiFailure as failure:
                if failure.status:
                    raise
                # The request may have been carried out. A second pod of this name is a conflict.
                self._api.create(pod)
        except ApiFailure as failure:
            if failure.status == HTTPStatus.CONFLICT:
                self._take_over(resource_id, name_of(pod))
                return
            with self._lock:
                self._started.discard(resource_id)
                if not failure.status:
                    # Should there be a pod after all, it is not wanted any more.
                    self._stopping[resource_id] = "its start has failed"
            raise

    def _take_over(self, resource_id: str, name: str) -> None:
        """Goes on with a pod that is there already, as after a request whose answer was lost."""
        pod = self._api.read(name)
        labels = {**worker_labels(self._cluster_id), RESOURCE_ID_LABEL: resource_id}
        if labels.items() <= (pod["metadata"].get("labels") or {}).items() and find_end(pod) is None:
            return
        with self._lock:
            self._started.discard(resource_id)
        raise ApiFailure(
            f"there is a pod {name} already, which is not a running TaskExecutor of cluster {self._cluster_id} "
            f"(conflict): delete it, or give this cluster another namespace",
            HTTPStatus.CONFLICT,
        )

    def _delete(self, pod: Pod) -> None:
        try:
            self._api.delete(name_of(pod))
        except ApiFailure as failure:
            _log.warning("a pod cannot be deleted; tries again", pod=name_of(pod), reason=str(failure))

    def _find_owner(self) -> Pod | None:
        wanted = self._configuration.get(OWNER)
        if wanted is not None and self._owner is None:
            self._owner = {"kind": wanted.partition("/")[0], **self._api.read_owner(wanted)}
        return self._owner

    def _unseen_pod(self, resource_id: str) -> Pod:
        metadata = {
            "name": pod_name(self._cluster_id, resource_id),
            "namespace": self._api.namespace,
            "labels": {RESOURCE_ID_LABEL: resource_id},
        }
        return {"metadata": metadata}

    def _address(self, resource_id: str) -> str:
        """Returns host:pid, as the process registers itself: it is the first of its container."""
        return f"{pod_name(self._cluster_id, resource_id)}:1"
