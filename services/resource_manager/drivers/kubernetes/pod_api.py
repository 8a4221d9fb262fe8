"""Requests about pods."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from ....kubernetes.api_client import ApiClient, ApiFailure, Place, Resource, ResourceEvent

Pod = Resource
_CORE: Final = "CoreV1Api"


class PodApi:
    """The pods of one namespace. Thread-safe. All methods raise ApiFailure."""

    def __init__(self, place: Place) -> None:
        self._client = ApiClient(place, "active")
        self.namespace = place.namespace

    def create(self, pod: Pod) -> Pod:
        """Creates a pod."""
        return self._client.ask("create the pod", _CORE, "create_namespaced_pod", body=pod)

    def read(self, name: str) -> Pod:
        """Returns a pod."""
        return self._client.ask("read the pod", _CORE, "read_namespaced_pod", name=name)

    def delete(self, name: str) -> bool:
        """Deletes a pod in its own grace period. Returns whether there was one."""
        try:
            self._client.ask("delete the pod", _CORE, "delete_namespaced_pod", name=name)
        except ApiFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def list(self, selector: str) -> tuple[list[Pod], str]:
        """Returns the pods with these labels, and the version of the resource from which a watch continues."""
        found = self._client.ask("list the pods", _CORE, "list_namespaced_pod", label_selector=selector)
        return list(found.get("items") or ()), str(found["metadata"]["resourceVersion"])

    def watch(self, selector: str, version: str, seconds: float) -> Iterator[ResourceEvent]:
        """Yields what happens to the pods after a version, for so many seconds at most. The status of a failure is 410
        if the server does not have that version any more."""
        return self._client.watch(
            "watch the pods",
            _CORE,
            "list_namespaced_pod",
            seconds,
            label_selector=selector,
            resource_version=version,
        )

    def read_owner(self, owner: str) -> Pod:
        """Returns the Deployment or StatefulSet `KIND/NAME`."""
        kind, _, name = owner.partition("/")
        method = f"read_namespaced_{'deployment' if kind == 'Deployment' else 'stateful_set'}"
        return self._client.ask(f"read {owner}", "AppsV1Api", method, name=name)

    def stop_watch(self) -> None:
        """Ends a running watch."""
        self._client.stop_watch()
