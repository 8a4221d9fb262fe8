"""Programs on a real cluster: shipped files, accumulators, jobs that they follow and cancel, application mode."""

from __future__ import annotations

import json
import signal
import zipfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pytest
from polling import TIMEOUT_S, wait_until
from wheels import make_wheel

from tailrace.services.cli.exit_codes import ExitCode

from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(300)

COUNTING = """
import os, signal
from tailrace import MapFunction

class Seen(MapFunction):
    def __init__(self, dies_at=None):
        self.dies_at = dies_at

    def open(self, context):
        self.seen, self.first = context.accumulator("seen"), context.attempt_number == 0
        context.accumulator("none of these")

    def map(self, value: int) -> int:
        if self.first and value == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen.inc()
        return value
"""

SEVERAL_JOBS = """
import json, sys, time
from tailrace import StreamExecutionEnvironment
from counting import Seen

env = StreamExecutionEnvironment.get_execution_environment()
env.generate(lambda i: i, rate_per_second=100, output_type=int).map(Seen()).filter(lambda i: False).print()
endless = env.execute_async("endless")
env.from_collection(range(250)).map(Seen()).print()
bounded = env.execute("bounded")

told = [0.0]
while told[-1] < 50:
    time.sleep(0.1)
    told.append(endless.accumulators().get("seen", 0.0))
running = endless.status()
endless.cancel()
ended = endless.result()
again = endless.result()
print(json.dumps({
    "rises": told == sorted(told), "at least": told[-1], "running": running, "ended": ended.status,
    "counted": ended.accumulators, "same": again == ended and endless.accumulators() == ended.accumulators,
    "bounded": [bounded.job_id, bounded.status, bounded.accumulators, bounded.duration.total_seconds() > 0],
}))
"""

MANY_JOBS = """
import gc, json, time, psutil
from tailrace import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
process, seen, deadline = psutil.Process(), [], time.monotonic() + 60
for number in range(5):
    env.from_collection([number]).print()
    env.execute(f"job {number}")
    seen.append([process.num_threads(), process.num_fds()])

def grows():
    (threads, files), (threads_at_end, files_at_end) = seen[1], seen[-1]
    return threads_at_end > threads + 2 or files_at_end > files + 4

# A client's threads end a moment after it is closed, or after the exception that still refers to it is collected.
while grows() and time.monotonic() < deadline:
    gc.collect()
    time.sleep(0.1)
    seen.append([process.num_threads(), process.num_fds()])
print(json.dumps({"seen": seen}))
"""

PRICED = """
from tailrace import StreamExecutionEnvironment, shipped_file
import till_z


def price(count: int) -> str:
    return f"{shipped_file('of/first/name.txt').read_text()} {count * till_z.RATE}"


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([2]).map(price).print()
env.execute("priced")
"""

COUNTS = """
from tailrace import MapFunction, StreamExecutionEnvironment

class Counts(MapFunction):
    def open(self, context):
        self.seen, self.all = context.metrics.counter("seen"), context.accumulator("all")

    def map(self, value: int) -> int:
        self.seen.inc()
        self.all.inc()
        return value

env = StreamExecutionEnvironment.get_execution_environment()
env.generate(lambda i: i, rate_per_second=50, output_type=int).map(Counts()).print()
env.execute("counts")
"""

COLLECTS = """
import json
from dataclasses import dataclass
from itertools import islice
from tailrace import StreamExecutionEnvironment

@dataclass(frozen=True)
class Pair:
    word: str
    count: int

env = StreamExecutionEnvironment.get_execution_environment()
pairs = env.from_collection(["a", "b", "a"]).map(lambda word: Pair(word, 1), output_type=Pair)
sums = pairs.key_by("word").sum("count")
sums.map(lambda pair: pair.word).print("also")
with sums.execute_and_collect("bounded") as records:
    found = set(records)
with env.generate(lambda n: n, rate_per_second=200, output_type=int).execute_and_collect("endless") as numbers:
    first = list(islice(numbers, 5))
print(json.dumps({
    "typed": found == {Pair("a", 1), Pair("b", 1), Pair("a", 2)}, "first": sorted(first),
    "status": numbers.job_client.result().status,
}))
"""

DIES = """
from tailrace import StreamExecutionEnvironment
from counting import Seen

env = StreamExecutionEnvironment.get_execution_environment()
env.configure("restart-strategy.type", "exponential-delay")
env.generate(lambda i: i, count=600, rate_per_second=400, output_type=int).map(Seen(dies_at=300)).print()
env.execute("dies once")
"""

SHIPPING = """
import sys
from pathlib import Path

import helpers
import pipelines.tax
import services
from tailrace import MapFunction, StreamExecutionEnvironment, shipped_file

here = Path(__file__).parent
env = StreamExecutionEnvironment.get_execution_environment()
env.configure("execution.isolation", "vertex")  # functions behind a channel run in Spark
for name in ("helpers.py", "pipelines", "services", "words.txt"):
    env.add_python_file(str(here / name))


def seen_here() -> list:
    import schemas_of_mine
    import os
    import sys
    words = shipped_file("words.txt").read_text()
    own = [os.getpid(), helpers.VERSION, pipelines.tax.rate(), services.NAME, schemas_of_mine.NAME, words]
    return own + [[each for each in sys.path if each in ("", os.getcwd())]]


env.add_python_file(str(here / "schemas_of_mine.py"))


def in_spark(i: int) -> dict:
    return {"spark": seen_here()}


class InStreamTask(MapFunction):
    def open(self, context):
        self.opened = seen_here()

    def map(self, value: dict) -> dict:
        return {**value, "opened": self.opened, "task": seen_here()}


env.generate(lambda i: i, rate_per_second=20, output_type=int).rebalance().map(in_spark).map(
    InStreamTask()
).print()
env.execute("shipping")
"""

APPLICATION = """
import json

from tailrace import StreamExecutionEnvironment
from shop.prices import Priced


def main(count, *names):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.generate(lambda i: i, count=int(count), output_type=int).map(Priced(names)).print()
    result = env.execute("shop of " + " and ".join(names))
    raise RuntimeError(f"nobody comes here: {result}")


def twice():
    env = StreamExecutionEnvironment.get_execution_environment()
    for name in ("first", "second"):
        env.from_collection([name]).print()
        env.execute_async(name)


def never():
    StreamExecutionEnvironment.get_execution_environment().from_collection([1]).print()
"""

PRICES = """
from tailrace import MapFunction, shipped_file


class Priced(MapFunction):
    def __init__(self, names):
        self.names = names

    def open(self, context):
        self.price = float(shipped_file("rates.csv").read_text())
        self.sold = context.accumulator("sold")

    def map(self, i: int) -> str:
        self.sold.inc(self.price)
        return f"{self.names[i % len(self.names)]} {self.price}"
"""


@pytest.fixture(scope="module")
def cluster(four_slots: Cluster) -> Cluster:
    return four_slots


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counting.py").write_text(COUNTING)
    return tmp_path


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def files_left(cluster: Cluster) -> list[str]:
    return [str(path) for path in cluster.home.rglob("python-files/*")]


def test_program_runs_several_jobs_follows_them_and_cancels_one(cluster: Cluster, folder: Path) -> None:
    (folder / "several.py").write_text(SEVERAL_JOBS)
    result = cluster.ok("run", "-o", "json", str(folder / "several.py"))
    reports = lines(result.stdout)
    (program,) = [report for report in reports if "rises" in report]
    assert program["rises"]
    assert (program["running"], program["ended"], program["same"]) == ("RUNNING", "CANCELED", True)
    assert program["counted"]["seen"] >= program["at least"] >= 50
    assert program["counted"]["none of these"] == 0
    job_id, *bounded = program["bounded"]
    assert bounded == ["FINISHED", {"none of these": 0.0, "seen": 250.0}, True]
    assert Counter(row["record"] for row in reports if "record" in row) == Counter(range(250))
    ends = {entry["job"]["name"]: entry["job"] for entry in reports if "job" in entry}
    assert ends["bounded"]["job_id"] == job_id
    assert ends["bounded"]["accumulators"]["seen"] == 250
    assert (ends["endless"]["status"], ends["endless"]["accumulators"]) == ("CANCELED", program["counted"])
    listed = {line["job_id"]: line for line in lines(cluster.ok("list", "-o", "json").stdout)}
    assert listed[job_id]["accumulators"]["seen"] == 250


@pytest.mark.parametrize("detached", [False, True])
def test_ended_job_has_no_connections(cluster: Cluster, folder: Path, detached: bool) -> None:
    (folder / "many.py").write_text(MANY_JOBS)
    result = cluster.ok("run", "-o", "json", *(["-d"] if detached else []), str(folder / "many.py"))
    (report,) = [json.loads(line)["seen"] for line in result.stdout.splitlines() if "seen" in line]
    (threads, descriptors), (threads_at_end, descriptors_at_end) = report[1], report[-1]
    assert threads_at_end <= threads + 2
    assert descriptors_at_end <= descriptors + 4


def test_show_has_places_of_tasks_and_accumulators(cluster: Cluster, folder: Path) -> None:
    (folder / "counts.py").write_text(COUNTS)
    job_id = cluster.ok("run", "-d", str(folder / "counts.py")).stdout.strip()

    def counted() -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(cluster.ok("show", "counts", "-o", "json").stdout)
        measured = any(name.endswith(".seen") for item in shown["subtasks"] for name in item["metrics"])
        return shown if measured and shown["accumulators"].get("all") else {}

    shown = wait_until(counted, "counters of a job that runs")
    assert shown["job_id"] == job_id
    assert {item["resource_id"] for item in shown["subtasks"]} <= {"taskexecutor-1", "taskexecutor-2"}
    assert any(element["metrics"].get("numRecordsIn", 0) > 0 for element in shown["subtasks"])
    text = cluster.ok("show", job_id).stdout
    assert "seen " in text
    assert "RECORDS IN" in text
    shown_id = job_id[:-24]
    assert shown_id in cluster.ok("list", "--status", "running", "--name", "counts").stdout
    assert shown_id not in cluster.ok("list", "--status", "FINISHED").stdout
    cluster.ok("cancel", "counts")


def test_sigterm_prints_what_happens_to_job(cluster: Cluster, folder: Path) -> None:
    (folder / "counts.py").write_text(COUNTS)
    with cluster.popen("run", str(folder / "counts.py")) as attached:
        read(attached.stdout, "readline")
        attached.send_signal(signal.SIGTERM)
        err = read(attached.stderr, "read")
        assert attached.wait(TIMEOUT_S) == ExitCode.TERMINATED
    assert "Traceback" not in err
    assert "runs on, and the program does not wait for it" in err
    cluster.ok("cancel", "counts")


def test_committed_values_count_once_with_killed_task(cluster: Cluster, folder: Path) -> None:
    (folder / "dies.py").write_text(DIES)
    result = cluster.ok("run", "-o", "json", str(folder / "dies.py"))
    reports = lines(result.stdout)
    assert Counter(report["record"] for report in reports if "record" in report) == Counter(range(600))
    assert reports[-1]["job"]["accumulators"]["seen"] == 600
    assert "attempt 2" in result.stderr
    text = cluster.ok("run", str(folder / "dies.py"))
    assert "seen" in text.stderr
    assert "600" in text.stderr
    assert "seen" not in text.stdout


def test_detached_run_does_not_wait(cluster: Cluster, folder: Path) -> None:
    (folder / "dies.py").write_text(DIES)
    result = cluster.ok("run", "-d", str(folder / "dies.py"))
    job_id = result.stdout.strip()
    assert "\n" not in job_id
    assert cluster.ok("output", "-f", job_id).stdout.count("\n") == 600


def read(stream: IO[str] | None, how: str) -> str:
    assert stream is not None
    result = getattr(stream, how)()
    assert isinstance(result, str)
    return result


def version(folder: Path, name: str, rate: int) -> Path:
    """Returns a program that ships modules, packages and a data file of this version."""
    written = {
        "helpers.py": f"VERSION = {name!r}",
        "pipelines/__init__.py": "",
        "pipelines/tax.py": f"def rate():\n    return {rate}",
        "services/__init__.py": f"NAME = 'services of {name}'",
        "schemas_of_mine.py": f"NAME = 'schemas of {name}'",
        "words.txt": f"words of {name}",
        "program.py": SHIPPING,
    }
    for path, content in written.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(content)
    return folder / name / "program.py"


PARTS = ("spark", "opened", "task")


def processes(line: str) -> set[int]:
    """Returns the ids of the processes that ran the functions for a record: Spark's worker and the StreamTask."""
    return {json.loads(line)["record"][where][0] for where in PARTS}


def test_two_jobs_in_one_task_executor_use_their_own_modules_and_packages(
    cluster: Cluster, folder: Path
) -> None:
    rates = {"one": 7, "two": 19}
    programs = {name: version(folder, name, rate) for name, rate in rates.items()}
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(cluster.popen("run", "-o", "json", str(path)))
            for name, path in programs.items()
        }
        report: dict[str, list[str]] = {name: [] for name in running}
        try:
            for name in (*running, *running):
                # Both have printed, and the first one goes on: they run side by side.
                report[name].append(read(running[name].stdout, "readline"))
                while len(processes(report[name][-1])) < 2:
                    # Until Spark's query delivers, the StreamTask runs all functions.
                    report[name].append(read(running[name].stdout, "readline"))
            assert len(files_left(cluster)) == 2
        finally:
            for process in running.values():
                process.send_signal(signal.SIGINT)
        for name, process in running.items():
            report[name] += read(process.stdout, "read").splitlines()
            assert process.wait(TIMEOUT_S) == ExitCode.INTERRUPTED, read(process.stderr, "read")
    for name, rate in rates.items():
        *records, last = map(json.loads, report[name])
        expected = [name, rate, f"services of {name}", f"schemas of {name}", f"words of {name}", []]
        for record in records:
            assert [record["record"][where][1:] for where in PARTS] == [expected] * len(PARTS)
        assert last["job"]["status"] == "CANCELED"
    assert files_left(cluster) == []


@pytest.fixture
def shop(folder: Path) -> list[str]:
    """Returns the options that ship an application: a package, its entry point, a data file."""
    (folder / "shop").mkdir()
    (folder / "shop" / "prices.py").write_text(PRICES)
    (folder / "shop" / "__init__.py").touch()
    (folder / "entry.py").write_text(APPLICATION)
    (folder / "rates.csv").write_text("2.5")
    names = ("shop", "entry.py", "rates.csv")
    return [part for name in names for part in ("--py-file", str(folder / name))]


def test_application_runs_at_master_from_its_shipped_files(cluster: Cluster, shop: list[str]) -> None:
    options = ["-p", "2", "-D", "execution.commit-interval-ms=5", "-o", "json", "--job-id", "the-shop"]
    result = cluster.ok("run", *shop, *options, "entry:main", "100", "tea", "milk")
    reports = lines(result.stdout)
    records = [report for report in reports if "record" in report]
    assert Counter(record["record"] for record in records) == {"tea 2.5": 50, "milk 2.5": 50}
    assert {record["subtask"] for record in records} == {1, 2}
    end = reports[-1]["job"]
    assert (end["job_id"], end["name"], end["status"]) == ("the-shop", "shop of tea and milk", "FINISHED")
    assert end["accumulators"] == {"sold": 250.0}
    started = cluster.ok("log", "--job", "the-shop", "--type", "StartJob", "-o", "json").stdout
    graph = json.loads(started)["body"]["job_graph"]
    assert graph["configuration"]["execution.commit-interval-ms"] == "5"
    assert [item["path"] for item in graph["python_files"]] == [
        "entry.py",
        "rates.csv",
        "shop/__init__.py",
        "shop/prices.py",
    ]
    assert files_left(cluster) == []


def test_program_runs_with_packages_of_its_requirements_and_its_archive(
    cluster: Cluster, folder: Path
) -> None:
    make_wheel(folder, "till_z", {"till_z.py": "RATE = 2.5"})
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links {folder}\ntill_z\n")
    with zipfile.ZipFile(folder / "names.zip", "w") as archive:
        archive.writestr("first/name.txt", "tea")
    (folder / "priced.py").write_text(PRICED)
    shipped = ["--requirements", folder / "requirements.txt", "--archive", f"{folder / 'names.zip'}#of"]
    result = cluster.ok("run", "-o", "json", *map(str, shipped), str(folder / "priced.py"))
    records = [report["record"] for report in lines(result.stdout) if "record" in report]
    assert records == ["tea 5.0"]
    assert "till_z-1.0-py3-none-any.whl" in result.stderr
    assert files_left(cluster) == []


def test_application_stops_at_its_first_execute(cluster: Cluster, shop: list[str]) -> None:
    result = cluster.ok("run", *shop, "-o", "json", "entry:twice")
    reports = lines(result.stdout)
    assert [report["record"] for report in reports if "record" in report] == ["first"]
    assert [row["job"]["name"] for row in reports if "job" in row] == ["first"]


def test_invalid_application_is_rejected_with_reason(cluster: Cluster, shop: list[str]) -> None:
    never = cluster.run("run", *shop, "entry:never")
    assert never.returncode == ExitCode.JOB
    assert "entry:never ended without executing a job" in never.stderr
    wrong = cluster.run("run", *shop, "entry:main", "many")
    assert wrong.returncode == ExitCode.JOB
    assert "ValueError: invalid literal" in wrong.stderr
    assert "entry.py:" in wrong.stderr


def test_program_collects_records_of_its_jobs(cluster: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "collects.py"
    program.write_text(COLLECTS)
    done = cluster.ok("run", str(program))
    *printed, told = done.stdout.splitlines()
    assert json.loads(told) == {"typed": True, "first": [0, 1, 2, 3, 4], "status": "CANCELED"}
    assert Counter(printed) == Counter(["also:1> a"] * 2 + ["also:1> b"])
