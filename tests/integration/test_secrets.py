"""A configured secret appears in nothing that a cluster leaves, and in no output of its commands."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic
from http_server import HttpHandler, HttpServer

from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.log.factory import create_admin_client
from tailrace.services.log.topics import create_topics

from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(300)

PROGRAM = """
import sys
from tailrace import Formats, KafkaSink, KafkaSource, StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment({"restart-strategy.type": "none"})
avro = Formats.avro(registry=sys.argv[2])
if sys.argv[1] == "write":
    env.from_collection([1, 2, 3], output_type=int).sink_to(KafkaSink("secrets", avro))
else:
    env.from_source(KafkaSource("secrets", avro, output_type=int, bounded=True)).print()
env.execute(sys.argv[1])
"""
RAISES = """
import sys
from tailrace import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment({"restart-strategy.type": "none"})
file = sys.argv[1]

def fails(number):
    secret = open(file).read().strip().rpartition(":")[2]
    raise ValueError(f"http://me:{secret}@host refused password={secret}")

env.from_collection([1], output_type=int).map(fails, output_type=int).print()
env.execute("raises")
"""


class Registry(HttpServer):
    """A schema registry with one schema, which requires a password."""

    def __init__(self, user: str, password: str) -> None:
        right = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
        self.refused = 0
        outer = self

        class Handler(HttpHandler):
            def do_POST(self) -> None:
                self._answer({"id": 1})

            def do_GET(self) -> None:
                self._answer({"schema": '"long"'})

            def _answer(self, found: dict[str, object]) -> None:
                self.read_body()
                output = self.headers.get("Authorization")
                if output != right:
                    outer.refused += 1
                    # As careless as a server may be: it repeats what it was told.
                    found = {"error_code": 40101, "message": f"Authorization: {output}"}
                self.answer_json(200 if output == right else 401, found)

        super().__init__(Handler)


@pytest.fixture
def registries(credentials: Path) -> Iterator[tuple[Registry, Registry]]:
    """Yields one registry that accepts the credentials of the cluster's file, and one that does not."""
    user, _, password = credentials.read_text().strip().partition(":")
    with Registry(user, password) as takes, Registry(user, "another") as refuses:
        yield takes, refuses


def test_password_appears_in_nothing_that_cluster_leaves(
    four_slots: Cluster, credentials: Path, registries: tuple[Registry, Registry], tmp_path: Path
) -> None:
    takes, refuses = registries
    secret = credentials.read_text().strip().rpartition(":")[2]
    printed: list[str] = []

    def run(code: ExitCode, *arguments: str) -> str:
        result = four_slots.run(*arguments)
        printed.append(result.stdout + result.stderr)
        assert result.returncode == code, f"{arguments}: {printed[-1]}"
        return printed[-1]

    create_topics(create_admin_client(four_slots.configuration), [NewTopic("secrets", 1)])
    program, raises = tmp_path / "program.py", tmp_path / "raises.py"
    program.write_text(PROGRAM)
    raises.write_text(RAISES)
    run(ExitCode.OK, "run", str(program), "write", f"http://{takes.address}")
    assert "1> 3" in run(ExitCode.OK, "run", str(program), "read", f"http://{takes.address}")
    assert "does not let this user write or read secrets-value" in run(
        ExitCode.JOB, "run", str(program), "write", f"http://{refuses.address}"
    )
    assert refuses.refused
    assert "http://***@host refused password=***" in run(ExitCode.JOB, "run", str(raises), str(credentials))
    in_url = f"http://me:{secret}@{takes.address}"
    assert "the registry's URL contains a user or password" in run(
        ExitCode.JOB, "run", str(program), "write", in_url
    )
    run(ExitCode.USAGE, "run", "program:main", in_url)
    run(ExitCode.USAGE, "run", "-D", f"schema.registry.url={in_url}", str(program))

    log = tmp_path / "log.jsonl"
    run(ExitCode.OK, "log", "export", str(log))
    run(ExitCode.OK, "cluster", "snapshot")
    raised = next(line.split()[0] for line in run(ExitCode.OK, "list").splitlines() if "host refused" in line)
    for command in ("list -o json", "state -o json", "config -o json", "log -o json", f"story {raised}"):
        run(ExitCode.OK, *command.split())
    assert "host refused" in run(ExitCode.OK, "show", raised)

    rest = dict(files([log, *four_slots.home.rglob("*")]))
    assert any(path.name.startswith("taskexecutor") for path in rest)
    assert any("snapshots" in str(path) for path in rest)
    assert [path for path, content in rest.items() if secret.encode() in content] == []
    encoded = base64.b64encode(credentials.read_bytes().strip())
    assert [path for path, content in rest.items() if encoded in content] == []
    assert [text for text in printed if secret in text] == []


def files(paths: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yields the files among the paths, with their contents; Kafka deletes those of ended jobs meanwhile."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            yield path, path.read_bytes()
