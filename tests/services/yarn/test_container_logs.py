"""The logs of running containers, from a NodeManager's REST API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_server import HttpHandler, HttpServer

from tailrace.services.yarn.application import RunningContainer
from tailrace.services.yarn.container_logs import read_running_logs
from tailrace.services.yarn.errors import YarnError

LOGS = "/ws/v1/node/containers/container_1/logs"
FILE = "/ws/v1/node/containerlogs/container_1"
PAGES = {
    LOGS: b'{"containerLogsInfo":{"containerLogInfo":[{"fileName":"b.err","fileSize":"3"},{"fileName":"a.out"}]}}',
    f"{FILE}/a.out": b"first",
    f"{FILE}/b.err": b"second \xff",
}


class NodeManager(HttpHandler):
    def do_GET(self) -> None:
        page = PAGES.get(self.path)
        self.answer(404 if page is None else 200, page or b"")


@pytest.fixture
def node() -> Iterator[str]:
    """Yields the URL of a NodeManager."""
    with HttpServer(NodeManager) as server:
        yield server.url


def test_files_of_container_are_read_in_order_of_their_names(node: str) -> None:
    assert list(read_running_logs(RunningContainer("container_1", node))) == ["first", "second \ufffd"]


def test_container_that_node_does_not_know_is_reported(node: str) -> None:
    with pytest.raises(
        YarnError, match=f"does not give a log: {node}/ws/v1/node/containers/container_2/logs"
    ):
        list(read_running_logs(RunningContainer("container_2", node)))
