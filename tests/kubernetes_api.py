"""An API server of Kubernetes: fabric8's mock with resources (a Java process), behind a server that adds what it lacks.

The mock's watches are WebSockets without history. The server in front follows one of them and gives watches as the API
does: events in lines, from any version on, until that version is forgotten (410 Gone). It also makes faults.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import pytest
import websocket
import yaml
from java_programs import java_compiles
from polling import TIMEOUT_S

from tailrace.infra.jars import resolve
from tailrace.infra.prerequisites import find_java
from tailrace.infra.versions import KUBERNETES_API_JARS

_SOURCE = Path(__file__).parent / "kubernetes" / "KubernetesApiServer.java"


class KubernetesMock:
    """The Java process. A context manager."""

    def __enter__(self) -> Self:
        if not java_compiles():
            pytest.skip(
                "no JDK on this machine, only a JRE: the API server cannot be launched from its source"
            )
        classpath = os.pathsep.join(map(str, resolve(KUBERNETES_API_JARS)))
        options = ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command = [find_java(), *options, "-cp", classpath, str(_SOURCE)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It ends with its standard input.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=10)
        self._process.kill()
        self._process.wait()


class _Collection:
    """The history of the resources of one kind in a namespace, from one watch of the mock."""

    def __init__(self, port: int, path: str, changed: threading.Condition) -> None:
        self._changed = changed
        self.history: list[dict[str, Any]] = []
        self.forgotten = 0
        """The number of events of which a watch cannot begin any more."""
        self._upstream = websocket.create_connection(
            f"ws://127.0.0.1:{port}{path}?watch=true", timeout=TIMEOUT_S
        )
        self._upstream.settimeout(None)
        threading.Thread(target=self._follow, daemon=True).start()

    def forget(self) -> None:
        """Ends each watch with 410 Gone. Call with the lock held."""
        self.forgotten = len(self.history) + 1
        self.history.append({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {}}})

    def close(self) -> None:
        self._upstream.close()

    def _follow(self) -> None:
        with contextlib.suppress(websocket.WebSocketException, OSError):
            while text := self._upstream.recv():
                with self._changed:
                    self.history.append(json.loads(text))
                    self._changed.notify_all()


class KubernetesApi:
    """One namespace of the mock, with versions and faults. A context manager."""

    def __init__(self, mock: KubernetesMock, namespace: str, home: Path) -> None:
        self.namespace = namespace
        self._port = mock.port
        self._changed = threading.Condition()
        self._refusals: list[tuple[str, int, str]] = []
        self._lost_answers: list[str] = []
        self._is_slow = self._is_closed = False
        self.watches = 0
        self.lists = 0
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._collections = {
            path: _Collection(mock.port, path, self._changed) for path in (self._pods, self._leases)
        }
        outer = self

        class Handler(_Handler):
            api = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._home = home
        self.config_file = self.write_config(self.address)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        for collection in self._collections.values():
            collection.close()

    def write_config(self, address: str) -> Path:
        """Writes a kubeconfig for a client that reaches the server by this address."""
        path = self._home / f"kubeconfig-{address.replace(':', '-')}"
        path.write_text(yaml.safe_dump(_kubeconfig(address)))
        return path

    def pods(self) -> dict[str, dict[str, Any]]:
        """Returns the pods by name."""
        return {pod["metadata"]["name"]: pod for pod in self.ask("GET", self._pods)[1]["items"]}

    def leases(self) -> dict[str, dict[str, Any]]:
        """Returns the Leases by name."""
        return {lease["metadata"]["name"]: lease for lease in self.ask("GET", self._leases)[1]["items"]}

    def delete_lease(self, name: str) -> None:
        """Deletes a Lease, as a person may do."""
        assert self.ask("DELETE", f"{self._leases}/{name}")[0] == 200

    def write_lease(self, lease: Mapping[str, Any]) -> None:
        """Writes a Lease, whatever its version is."""
        metadata = {key: value for key, value in lease["metadata"].items() if key != "resourceVersion"}
        path = f"{self._leases}/{metadata['name']}"
        assert self.ask("PUT", path, {**lease, "metadata": metadata})[0] == 200

    def create(self, pod: Mapping[str, Any]) -> None:
        """Creates a pod that is not the driver's."""
        assert self.ask("POST", self._pods, pod)[0] == 201

    def create_other(self, path: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        """Creates another resource, below /apis/."""
        status, answer = self.ask("POST", path, thing)
        assert status == 201
        created: dict[str, Any] = answer
        return created

    def write(self, pod: Mapping[str, Any]) -> bool:
        """Writes a pod that was read; returns whether nobody has changed it since."""
        return self.ask("PUT", f"{self._pods}/{pod['metadata']['name']}", pod)[0] == 200

    def set_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Writes the status of a pod, as a kubelet does."""
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "status": status}
        assert self.ask("PUT", f"{self._pods}/{name}/status", body)[0] == 200

    def delete(self, name: str) -> None:
        """Deletes a pod: at once, or when its last finalizer is removed."""
        assert self.ask("DELETE", f"{self._pods}/{name}")[0] == 200

    def refuse(self, method: str, status: int, message: str, times: int = 1) -> None:
        """Refuses the next requests with this method."""
        with self._changed:
            self._refusals += [(method, status, message)] * times

    def accept(self) -> None:
        """Refuses nothing any more."""
        with self._changed:
            self._refusals.clear()

    def lose_answer(self, method: str) -> None:
        """Carries out the next request with this method, and closes its connection without an answer."""
        with self._changed:
            self._lost_answers.append(method)

    def forget_versions(self) -> None:
        """Forgets all versions until now: each watch ends with 410 Gone."""
        with self._changed:
            for collection in self._collections.values():
                collection.forget()
            self._changed.notify_all()

    @contextlib.contextmanager
    def slow_watches(self) -> Iterator[None]:
        """A context in which no watch tells anything."""
        with self._changed:
            self._is_slow = True
        try:
            yield
        finally:
            with self._changed:
                self._is_slow = False
                self._changed.notify_all()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Asks the mock itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content else {"message": f"{path} not found"}

    def take_refusal(self, method: str) -> tuple[int, str] | None:
        """Returns the status and message of a refusal for this request."""
        with self._changed:
            for index, (refused, status, message) in enumerate(self._refusals):
                if refused == method:
                    del self._refusals[index]
                    return status, message
        return None

    def takes_lost_answer(self, method: str) -> bool:
        """Returns whether the answer to this request is to be lost."""
        with self._changed:
            if method not in self._lost_answers:
                return False
            self._lost_answers.remove(method)
            return True

    def list(self, path: str) -> tuple[int, Any]:
        """Lists as the mock does; a watch from the version on tells what happens later, and maybe again what the list
        has."""
        collection = self._collections[urlsplit(path).path]
        with self._changed:
            version = len(collection.history)
            self.lists += 1
        status, found = self.ask("GET", path)
        found["metadata"] = {"resourceVersion": str(version)}
        return status, found

    def events(
        self, path: str, query: Mapping[str, str], is_selected: Callable[[Mapping[str, Any]], bool]
    ) -> Iterator[dict[str, Any]]:
        """Yields the events after a version; without one, what there is and each change."""
        collection = self._collections[path]
        until = time.monotonic() + float(query["timeoutSeconds"])
        with self._changed:
            self.watches += 1
            version = int(query.get("resourceVersion") or len(collection.history))
        if "resourceVersion" not in query:
            for item in filter(is_selected, self.ask("GET", path)[1]["items"]):
                yield {"type": "ADDED", "object": item}
        while (left_s := until - time.monotonic()) > 0:
            with self._changed:
                if self._is_closed:
                    return
                if version < collection.forgotten:
                    status = {
                        "kind": "Status",
                        "code": 410,
                        "reason": "Expired",
                        "message": "too old resource version",
                    }
                    yield {"type": "ERROR", "object": status}
                    return
                if version >= len(collection.history) or self._is_slow:
                    self._changed.wait(left_s)
                    continue
                event = collection.history[version]
                version += 1
            if event["type"] == "BOOKMARK" or is_selected(event["object"]):
                metadata = {**event["object"]["metadata"], "resourceVersion": str(version)}
                yield {"type": event["type"], "object": {**event["object"], "metadata": metadata}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: KubernetesApi

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        if query.get("watch", "").lower() == "true":
            self._watch(url.path, query)
        else:
            self._answer("list" if "labelSelector" in query else "")

    def do_POST(self) -> None:
        self._answer("")

    def do_PUT(self) -> None:
        self._answer("")

    def do_DELETE(self) -> None:
        self._answer("")

    def _answer(self, how: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        refusal = self.api.take_refusal(self.command)
        if refusal is not None:
            status, answer = refusal[0], {"kind": "Status", "status": "Failure", "message": refusal[1]}
        elif how == "list":
            status, answer = self.api.list(self.path)
        else:
            status, answer = self.api.ask(self.command, self.path, None if self.command == "DELETE" else body)
        if self.api.takes_lost_answer(self.command):
            self.close_connection = True
            return
        content = json.dumps(answer).encode()
        # The client may be gone.
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _watch(self, path: str, query: Mapping[str, str]) -> None:
        def is_selected(item: Mapping[str, Any]) -> bool:
            metadata = item["metadata"]
            labels = dict(each.split("=", 1) for each in query.get("labelSelector", "").split(",") if each)
            name = query.get("fieldSelector", "").removeprefix("metadata.name=")
            return labels.items() <= (metadata.get("labels") or {}).items() and name in ("", metadata["name"])

        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            for event in self.api.events(path, query, is_selected):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: Any) -> None: ...


def _kubeconfig(address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://{address}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
