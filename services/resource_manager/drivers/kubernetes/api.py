"""Requests about pods to the API server, by the official client. Pods are the API's JSON objects, as dictionaries.

Every request has a time limit, and every failure is one line: what was refused, why, and what to do. The client is
imported with the first request, because that takes a second.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from ....configuration import Configuration
from ....configuration.options import kubernetes as options

Pod = Mapping[str, Any]
"""A pod as the API describes it."""

CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
WATCH_S: Final = 60
"""How long the server keeps a watch open at most."""
SILENCE_S: Final = 15.0
"""How much longer the client waits for the end of a watch."""


class ApiFailure(Exception):
    """The API server refused a request, or did not answer. The message is one line. `status`: of HTTP; 0: no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class PodEvent(NamedTuple):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the pod."""

    kind: str
    pod: Pod


class Place(msgspec.Struct, frozen=True):
    """Where pods are, and how the API server is reached."""

    namespace: str
    config_file: str | None
    context: str | None

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> Place:
        """Reads the options."""
        return cls(
            configuration.get(options.NAMESPACE),
            configuration.get(options.CONFIG_FILE),
            configuration.get(options.CONTEXT),
        )


class PodApi:
    """The pods of one namespace. Thread-safe. All methods raise ApiFailure."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.namespace = place.namespace
        self._lock = threading.Lock()
        self._client: Any = None
        self._watch: Any = None

    def create(self, pod: Pod) -> Pod:
        """Creates a pod."""
        return self._ask("create the pod", "create_namespaced_pod", body=pod)

    def read(self, name: str) -> Pod:
        """Returns a pod."""
        return self._ask("read the pod", "read_namespaced_pod", name=name)

    def delete(self, name: str) -> bool:
        """Deletes a pod in its own grace period. Returns whether there was one."""
        try:
            self._ask("delete the pod", "delete_namespaced_pod", name=name)
        except ApiFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def list(self, selector: str) -> tuple[list[Pod], str]:
        """Returns the pods with these labels, and the version of the resource from which a watch continues."""
        found = self._ask("list the pods", "list_namespaced_pod", label_selector=selector)
        return list(found.get("items") or ()), str(found["metadata"]["resourceVersion"])

    def watch(self, selector: str, version: str, seconds: float) -> Iterator[PodEvent]:
        """Yields what happens to the pods after a version, for so many seconds, and for WATCH_S at most. The status of
        a failure is 410 if the server does not have that version any more."""
        timeout_s = max(1, min(WATCH_S, round(seconds)))
        core = self._api("CoreV1Api")
        from kubernetes import watch

        # Not the class of pods: a pod of a newer API has fields that this client may not know.
        self._watch = watch.Watch(return_type="object")
        with _one_line("watch the pods", self._place):
            for event in self._watch.stream(
                core.list_namespaced_pod,
                self._place.namespace,
                label_selector=selector,
                resource_version=version,
                timeout_seconds=timeout_s,
                allow_watch_bookmarks=True,
                _request_timeout=(CONNECT_TIMEOUT_S, timeout_s + SILENCE_S),
            ):
                if event is not None:
                    yield PodEvent(event["type"], event["raw_object"])

    def read_owner(self, owner: str) -> Pod:
        """Returns the Deployment or StatefulSet `KIND/NAME`."""
        kind, _, name = owner.partition("/")
        method = f"read_namespaced_{'deployment' if kind == 'Deployment' else 'stateful_set'}"
        return self._ask(f"read {owner}", method, api="AppsV1Api", name=name)

    def stop_watch(self) -> None:
        """Ends a running watch."""
        if self._watch is not None:
            self._watch.stop()

    def _ask(self, what: str, method: str, *, api: str = "CoreV1Api", **arguments: Any) -> dict[str, Any]:
        call: Callable[..., Any] = getattr(self._api(api), method)
        arguments |= {"namespace": self._place.namespace, "_preload_content": False}
        with _one_line(what, self._place):
            response = call(**arguments, _request_timeout=(CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S))
            body = response.read() if hasattr(response, "read") else response.data
            if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                raise _refusal(what, self._place, response.status, body)
            answer: dict[str, Any] = json.loads(body or b"{}")
            return answer

    def _api(self, name: str) -> Any:
        from kubernetes import client, config

        with self._lock:
            if self._client is None:
                place, settings = self._place, client.Configuration()
                # The driver repeats what it may repeat.
                settings.retries = False
                try:
                    if place.config_file is None:
                        config.load_incluster_config(settings)
                    else:
                        config.load_kube_config(place.config_file, place.context, settings)
                except Exception as error:
                    raise ApiFailure(
                        f"the API server of Kubernetes is not known: {_flat(error)}: run the jobmanager in a pod with "
                        f"a service account, or set {options.CONFIG_FILE.key}"
                    ) from None
                self._client = client.ApiClient(settings)
        return getattr(client, name)(self._client)


@contextlib.contextmanager
def _one_line(what: str, place: Place) -> Iterator[None]:
    """A context that turns the errors of the client into ApiFailure."""
    try:
        yield
    except ApiFailure:
        raise
    except Exception as error:
        status = getattr(error, "status", None)
        if isinstance(status, int) and status:
            body = getattr(error, "body", None) or getattr(error, "reason", None) or ""
            raise _refusal(what, place, status, body) from None
        raise ApiFailure(
            f"the API server of Kubernetes did not answer the request to {what}: {_flat(error)}"
        ) from None


def _refusal(what: str, place: Place, status: int, body: bytes | str) -> ApiFailure:
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
    try:
        told = json.loads(text)
        text = str(told.get("message") or text) if isinstance(told, dict) else text
    except ValueError:
        pass
    hint = _hint(status, text, place.namespace)
    return ApiFailure(
        f"the API server of Kubernetes refuses to {what} in namespace {place.namespace} (status {status}): "
        f"{_flat(text) or 'no reason given'}{hint}",
        status,
    )


def _hint(status: int, text: str, namespace: str) -> str:
    match status:
        case HTTPStatus.FORBIDDEN if "quota" in text:
            return ": raise the quota of the namespace, or let taskmanager.memory.* and taskmanager.cpu.cores need less"
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return (
                ": give the service account of the jobmanager the role of infra/kubernetes/components/active in "
                f"namespace {namespace}"
            )
        case HTTPStatus.NOT_FOUND if "namespaces" in text:
            return f": create the namespace, or set {options.NAMESPACE.key}"
        case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
            return f": correct {options.POD_TEMPLATE_FILE.key}"
        case _:
            return ""


def _flat(error: object) -> str:
    return " ".join(str(error).split())[:400] or repr(error)
