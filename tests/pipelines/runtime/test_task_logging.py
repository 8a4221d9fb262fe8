"""The log lines of user functions name their task, and a job's file is complete across rotation."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.runtime.common import task_logging
from tailrace.pipelines.runtime.common.deployment import VertexDeployment
from tailrace.pipelines.runtime.common.task_logging import TaskLogging, serve

WRITES = """
import logging, sys
from pathlib import Path
from tailrace.pipelines.runtime.common import task_logging
task_logging.MAX_FILE_BYTES, task_logging.MAX_FILES = 2_000, 1_000
logging.getLogger().addHandler(task_logging.SharedFileHandler(Path(sys.argv[1])))
for number in range(200):
    logging.error("line %s of %s: %s", number, sys.argv[2], "x" * 50)
"""


PRINTS = """
import sys
from tailrace.pipelines.runtime.common import task_logging
sys.stderr = open("/dev/full", "w")
task_logging.make_output_lossy()
for number in range(20_000):
    print("printed", number)
    print("printed", number, file=sys.stderr, flush=True)
"""


@pytest.fixture(autouse=True)
def _root_as_before() -> object:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for item in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(item)
        item.close()
    root.setLevel(level)


def logging_of(directory: Path, **options: str) -> TaskLogging:
    env = StreamExecutionEnvironment()
    env.from_collection([1], int).map(lambda n: n, int).set_parallelism(1).print()
    env.configure("logging.directory", str(directory))
    for key, value in options.items():
        env.configure(key.replace("_", "."), value)
    graph = env.get_job_graph("job")
    return TaskLogging.from_deployment(
        VertexDeployment("c", "job-1f", graph, graph.vertices[0].vertex_id, ())
    )


def test_log_line_names_task_and_has_no_secret(tmp_path: Path) -> None:
    logs = logging_of(tmp_path)
    logs.begin()
    logging.getLogger("orders").info("opened")
    serve(0, 2)
    logging.getLogger("orders.rich").warning("LOGGED %s at %s", 2400, "http://u:secret@host")
    logging.getLogger("orders").debug("too fine")
    opened, rich = (tmp_path / "job-1f.log").read_text().splitlines()
    name = re.escape(logs.vertex)
    assert re.fullmatch(rf"\S+ \S+ INFO orders \[job-1f, {name}\] opened", opened)
    assert re.fullmatch(
        rf"\S+ \S+ WARNING orders\.rich \[job-1f, {name} \(1/1\), attempt 3\] LOGGED 2400 at http://\*\*\*@?host",
        rich,
    )


def test_log_level_is_that_of_job_and_earlier_task_is_forgotten(tmp_path: Path) -> None:
    logging_of(tmp_path / "a").begin()
    logging_of(tmp_path / "b", logging_level="ERROR").begin()
    logging.warning("no")
    logging.error("yes")
    assert "yes" in (tmp_path / "b" / "job-1f.log").read_text()
    assert (tmp_path / "a" / "job-1f.log").read_text() == ""


def test_line_that_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    logging_of(tmp_path / "a").begin()
    for file in (tmp_path / "a").iterdir():
        file.unlink()
    (tmp_path / "a").rmdir()
    logging.error("nowhere")


def test_processes_share_rotated_file(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    writers = [subprocess.Popen([sys.executable, "-c", WRITES, str(path), str(i)]) for i in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    files = [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")]
    lines = Counter(line.partition(":")[0] for file in files for line in file.read_text().splitlines())
    assert lines == Counter(f"line {number} of {i}" for number in range(200) for i in range(3))
    assert max(file.stat().st_size for file in files) < 2_200
    assert len(files) > 10


def test_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_logging, "MAX_FILE_BYTES", 100)
    handler = task_logging.SharedFileHandler(tmp_path / "job.log")
    for number in range(40):
        handler.emit(logging.makeLogRecord({"msg": f"{number} {'x' * 60}"}))
    handler.close()
    assert len(list(tmp_path.glob("job.log*"))) == 1 + task_logging.MAX_FILES + 1  # and the lock
    assert "39 " in (tmp_path / "job.log").read_text()


def test_printed_text_that_cannot_be_written_is_dropped() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([sys.executable, "-c", PRINTS], stdout=full, check=False)
    assert result.returncode == 0


def test_printed_text_is_written_line_by_line(tmp_path: Path) -> None:
    """Also after a time in which nothing could be written."""
    program = """
import resource, signal
from tailrace.pipelines.runtime.common import task_logging
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
task_logging.make_output_lossy()
print("before")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (len("before\\n"), hard))
print("lost")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print("after")
"""
    path = tmp_path / "log"
    with path.open("ab") as log:
        result = subprocess.run([sys.executable, "-c", program], stdout=log, check=False)
    assert result.returncode == 0
    assert path.read_text() == "before\nafter\n"


def test_json_lines_name_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_LOG_FORMAT", "json")
    logging_of(tmp_path).begin()
    serve(1, 2)
    logging.getLogger("program").warning("of %s", "it")
    serve(None, 0)
    logging.getLogger("program").warning("of all")
    first, second = map(json.loads, (tmp_path / "job-1f.log").read_text().splitlines())
    assert {key: first[key] for key in ("level", "logger", "event", "job_id", "subtask_index", "attempt_number")} == {
        "level": "warning", "logger": "program", "event": "of it", "job_id": "job-1f", "subtask_index": 1,
        "attempt_number": 2,
    }  # fmt: skip
    assert first["task_name"] == second["task_name"]
    assert "subtask_index" not in second
