"""A StreamTask from files to files on real Kafka is killed repeatedly: each line is in one file."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from connectors import web_server_log

from tailrace import FileSink, StreamExecutionEnvironment
from tailrace.infra.kafka import EmbeddedKafka
from tailrace.pipelines.graph.physical_plan import topics
from tailrace.pipelines.runtime.common.deployment import SubtaskDeployment
from tailrace.pipelines.runtime.common.protocol import OpenTask, OpenTasks
from tailrace.schemas.types import JobGraph

LINES = 200_000
LINES_PER_FILE = 10_000
KILLED_AT = (2, 5, 9)
"""Files that are there when an attempt is killed."""

ATTEMPT = """
import sys, msgspec
from tailrace.pipelines.runtime.common.protocol import OpenTasks
from tailrace.pipelines.runtime.stream_task.loop.mailbox import Mailbox
from tailrace.pipelines.runtime.stream_task.loop.task_group import TaskGroup

opening = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=OpenTasks)
TaskGroup(opening, Mailbox(), lambda _, notice: print(notice, flush=True)).invoke()
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    lines = [f"{i} {line}" for i, line in enumerate(web_server_log(LINES))]
    for i in range(4):
        (directory / f"access.{i}.log").write_text("\n".join(lines[i::4]))
    return directory


def create_topics(servers: str, cluster: str, job: str, graph: JobGraph) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(name, count, 1) for name, count in topics(cluster, job, graph).items()]
    for created in admin.create_topics(wanted).values():
        created.result(30)


def attempt(opening: OpenTasks) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", ATTEMPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(msgspec.msgpack.encode(opening))
    process.stdin.close()
    return process


def visible(directory: Path) -> list[Path]:
    return [file for file in directory.glob("*") if not file.name.startswith(".")]


def test_each_line_is_in_one_file_with_any_kill(
    kafka: EmbeddedKafka, cluster_id: str, tmp_path: Path, source: Path
) -> None:
    out = tmp_path / "out"
    env = StreamExecutionEnvironment()
    env.set_parallelism(1)
    env.read_text_file(str(source)).map(str.upper).sink_to(FileSink(str(out), roll_records=LINES_PER_FILE))
    graph = env.get_job_graph()
    (vertex,) = graph.vertices
    job = uuid.uuid4().hex
    create_topics(kafka.bootstrap_servers, cluster_id, job, graph)
    seen: dict[Path, bytes] = {}
    for number, files in enumerate((*KILLED_AT, None)):
        process = attempt(
            OpenTasks(
                cluster_id,
                job,
                graph,
                (OpenTask(vertex.vertex_id, SubtaskDeployment("", 0, number)),),
                kafka.connection,
            )
        )
        with process:
            try:
                while files is not None and process.poll() is None and len(visible(out)) < files:
                    time.sleep(0.005)
                if files is not None:
                    process.send_signal(signal.SIGKILL)
                assert process.stdout is not None
                output = process.stdout.read().decode()
            finally:
                process.kill()
        assert files is not None or "Finished" in output, output
        now = {file: file.read_bytes() for file in visible(out)}
        assert seen.items() <= now.items()
        seen = now
    written = [line for file in seen for line in file.read_text().splitlines()]
    read = [line.upper() for file in source.iterdir() for line in file.read_text().splitlines()]
    assert len(written) == LINES
    assert sorted(written) == sorted(read)
    assert len(seen) == LINES // LINES_PER_FILE
    assert list(out.glob(".*")) == []
