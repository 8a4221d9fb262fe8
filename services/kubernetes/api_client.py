"""Requests to the API server, by the official client. Resources are the API's JSON objects, as dictionaries.

Every request has a time limit, and every failure is one line: what was refused, why, and what to do. The client is
imported with the first request, because that takes a second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from ..configuration import Configuration, ConfigurationError
from ..configuration.options import kubernetes as options

Resource = Mapping[str, Any]
"""A resource as the API describes it."""

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


class ResourceEvent(NamedTuple):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the resource."""

    kind: str
    resource: Resource


class Place(msgspec.Struct, frozen=True):
    """The namespace, and how the API server is reached."""

    namespace: str
    config_file: str | None = None
    context: str | None = None

    @classmethod
    def from_configuration(cls, configuration: Configuration) -> Place:
        """Reads the options."""
        return cls(
            configuration.get(options.NAMESPACE),
            configuration.get(options.CONFIG_FILE),
            configuration.get(options.CONTEXT),
        )


class TimeLimits(NamedTuple):
    """How long a request may take."""

    connect_s: float = CONNECT_TIMEOUT_S
    answer_s: float = REQUEST_TIMEOUT_S


def require_client(option: str) -> None:
    """Raises ConfigurationError, which names the option, if the official client is not installed."""
    if importlib.util.find_spec("kubernetes") is None:
        needed = "pip install 'tailrace[kubernetes]'"
        raise ConfigurationError(
            [f"{option} is kubernetes, but the package kubernetes is not installed: {needed}"]
        )


class ApiClient:
    """The resources of one namespace. Thread-safe. All methods raise ApiFailure."""

    def __init__(self, place: Place, component: str, limits: TimeLimits | None = None) -> None:
        """`component`: the one of infra/kubernetes/components that gives the rights to these requests."""
        self._place = place
        self.namespace = place.namespace
        self._component = component
        self._limits = limits or TimeLimits()
        self._lock = threading.Lock()
        self._client: Any = None
        self._watch: Any = None

    def ask(self, what: str, api: str, method: str, **arguments: Any) -> dict[str, Any]:
        """Calls a method of an API class of the client with the namespace; returns the answer. `what` is for
        messages."""
        call: Callable[..., Any] = getattr(self._api(api), method)
        arguments |= {"namespace": self._place.namespace, "_preload_content": False}
        with self._one_line(what):
            response = call(**arguments, _request_timeout=tuple(self._limits))
            body = response.read() if hasattr(response, "read") else response.data
            if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                raise self._refusal(what, response.status, body)
            answer: dict[str, Any] = json.loads(body or b"{}")
            return answer

    def watch(
        self, what: str, api: str, method: str, seconds: float, **arguments: Any
    ) -> Iterator[ResourceEvent]:
        """Yields what happens to the resources that the method lists, for so many seconds, and for WATCH_S at most. The
        status of a failure is 410 if the server does not have the given version any more."""
        timeout_s = max(1, min(WATCH_S, round(seconds)))
        call = getattr(self._api(api), method)
        from kubernetes import watch

        # Not the class of the resource: one of a newer API has fields that this client may not know.
        self._watch = watch.Watch(return_type="object")
        with self._one_line(what):
            for event in self._watch.stream(
                call,
                self._place.namespace,
                timeout_seconds=timeout_s,
                allow_watch_bookmarks=True,
                _request_timeout=(self._limits.connect_s, timeout_s + SILENCE_S),
                **arguments,
            ):
                if event is not None:
                    yield ResourceEvent(event["type"], event["raw_object"])

    def stop_watch(self) -> None:
        """Ends a running watch."""
        if self._watch is not None:
            self._watch.stop()

    def _api(self, name: str) -> Any:
        from kubernetes import client, config

        with self._lock:
            if self._client is None:
                place, settings = self._place, client.Configuration()
                # Callers repeat what may be repeated.
                settings.retries = False
                try:
                    if place.config_file is None:
                        config.load_incluster_config(settings)
                    else:
                        config.load_kube_config(place.config_file, place.context, settings)
                except Exception as error:
                    raise ApiFailure(
                        f"the API server of Kubernetes is not known: {_flat(error)}: run the process in a pod with "
                        f"a service account, or set {options.CONFIG_FILE.key}"
                    ) from None
                self._client = client.ApiClient(settings)
        return getattr(client, name)(self._client)

    @contextlib.contextmanager
    def _one_line(self, what: str) -> Iterator[None]:
        """A context that turns the errors of the client into ApiFailure."""
        try:
            yield
        except ApiFailure:
            raise
        except Exception as error:
            status = getattr(error, "status", None)
            if isinstance(status, int) and status:
                body = getattr(error, "body", None) or getattr(error, "reason", None) or ""
                raise self._refusal(what, status, body) from None
            raise ApiFailure(
                f"the API server of Kubernetes did not answer the request to {what}: {_flat(error)}"
            ) from None

    def _refusal(self, what: str, status: int, body: bytes | str) -> ApiFailure:
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
        try:
            told = json.loads(text)
            text = str(told.get("message") or text) if isinstance(told, dict) else text
        except ValueError:
            pass
        return ApiFailure(
            f"the API server of Kubernetes refuses to {what} in namespace {self.namespace} (status {status}): "
            f"{_flat(text) or 'no reason given'}{self._hint(status, text)}",
            status,
        )

    def _hint(self, status: int, text: str) -> str:
        match status:
            case HTTPStatus.FORBIDDEN if "quota" in text:
                return (
                    ": raise the quota of the namespace, or let taskmanager.memory.* and taskmanager.cpu.cores "
                    "need less"
                )
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                return (
                    ": give the service account of the process the role of "
                    f"infra/kubernetes/components/{self._component} in namespace {self.namespace}"
                )
            case HTTPStatus.NOT_FOUND if "namespaces" in text:
                return f": create the namespace, or set {options.NAMESPACE.key}"
            case HTTPStatus.BAD_REQUEST | HTTPStatus.UNPROCESSABLE_ENTITY:
                return f": correct {options.POD_TEMPLATE_FILE.key}"
            case _:
                return ""


def _flat(error: object) -> str:
    return " ".join(str(error).split())[:400] or repr(error)
