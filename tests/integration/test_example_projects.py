"""The projects in examples/ on a real cluster: each has the results that its own tests demand of it in memory."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from committed_messages import read_by_partition
from kafka_topics import Topics

import tailrace
from tailrace import Format, Formats
from tailrace.testing import TopicMessage

from .test_cluster import Cluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]

EXAMPLES = Path(tailrace.__file__).parent / "examples"
PROJECTS = sorted(path.parent.name for path in EXAMPLES.glob("*/test_*.py"))


class ProjectTopic:
    """What projects use of a Topic of tailrace.testing, on Kafka."""

    def __init__(self, servers: str, name: str) -> None:
        self._servers, self._name = servers, name

    def records(self) -> list[Any]:
        """The values, decoded as JSON."""
        return [json.loads(message.value or b"null") for message in self.messages()]

    def by_key(self) -> dict[str, Any]:
        """The last value of each key."""
        return {(each.key or b"").decode(): json.loads(each.value or b"null") for each in self.messages()}

    def messages(self) -> list[TopicMessage]:
        """All committed messages."""
        return [
            TopicMessage(
                each.value(),
                each.key(),
                each.timestamp()[1],
                each.headers() or [],
                each.partition(),
                each.offset(),
            )
            for each in read_by_partition(self._servers, self._name)
        ]


class ProjectCluster:
    """What projects use of a MiniCluster, on a real one."""

    def __init__(self, cluster: Cluster, servers: str) -> None:
        self._cluster, self._servers, self._topics = cluster, servers, Topics(servers)

    def topic(self, name: str, partitions: int = 1, format: Format = Formats.json()) -> ProjectTopic:  # noqa: B008
        """Creates a topic."""
        del format
        self._topics.create(name, partitions)
        return ProjectTopic(self._servers, name)

    def run(self, program: Path, arguments: Sequence[str] = ()) -> None:
        """Runs a program to its end."""
        self._cluster.ok("run", "-p", "2", str(program), *arguments)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProjectCluster]:
    own = Cluster(tmp_path_factory.mktemp("projects") / "home", TAILRACE_TASKMANAGER_NUMBEROFTASKSLOTS="4")
    own.ok("cluster", "start")
    try:
        servers = json.loads((own.home / "cluster.json").read_text())["bootstrap_servers"]
        yield ProjectCluster(own, servers)
    finally:
        own.ok("cluster", "stop")


@pytest.mark.parametrize("project", PROJECTS)
def test_project_has_its_results(project: str, cluster: ProjectCluster, tmp_path: Path) -> None:
    importlib.import_module(f"test_{project}").check_results(cluster, tmp_path, partitions=2)
