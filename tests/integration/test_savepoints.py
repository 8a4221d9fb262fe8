"""Savepoints from the command line, on a real cluster: a job is stopped with one and restarted from it at another
parallelism; the output of both together equals that of one job that never stopped. Offsets are reset in a copy."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from kafka_topics import Topics
from polling import wait_until

from tailrace.services.cli.exit_codes import ExitCode

from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(400)

RECORDS, KEYS = 12_000, 40
SLOWLY, QUICKLY = "40", "10000"
"""Records per second: a job that is to be stopped has work for five minutes, one that is to finish for seconds."""
PROGRAM = f"""
import enum
import sys
from dataclasses import dataclass

from tailrace import StreamExecutionEnvironment


class Parity(enum.Enum):
    EVEN = 0
    ODD = 1


@dataclass(frozen=True)
class Key:  # of the program's own: each run of it has another class, and the state is found all the same
    word: str
    parity: Parity


def key_of(record: tuple[str, int]) -> Key:
    return Key(record[0], Parity(len(record[0]) % 2))


def numbered(number: int) -> tuple[str, int]:
    return f"key {{number % {KEYS}}}", 1


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.generate(numbered, count={RECORDS}, rate_per_second=float(sys.argv[1])).uid("numbers")
numbers.key_by(key_of).sum(1).uid("counts").print()
env.execute("Count")
"""


READER = """
import sys

from tailrace import Formats, KafkaRecord, KafkaSource, StreamExecutionEnvironment

topic, bounded = sys.argv[1], sys.argv[2] == "bounded"


def place(record: KafkaRecord[str | None, str]) -> str:
    return f"{record.partition}:{record.offset}"


env = StreamExecutionEnvironment.get_execution_environment()
source = KafkaSource(topic, Formats.text(), output_type=KafkaRecord[str | None, str], bounded=bounded)
records = env.from_source(source).uid("reader")
# A count, so that the savepoint has a file of state too.
records.map(place, str).key_by(lambda place: place, str).reduce(lambda a, b: f"{a},{b}").uid("places").print()
env.execute("Reader")
"""


@pytest.fixture(scope="module")
def cluster(four_slots: Cluster) -> Cluster:
    home = four_slots.home
    for name, uid in {"count.py": "counts", "changed.py": "other"}.items():
        (home.parent / name).write_text(PROGRAM.replace('"counts"', f'"{uid}"'))
    itself = PROGRAM.replace(
        "import sys\n", "import sys\n\nfrom tailrace.pipelines.api import CheckpointFailedError\n"
    )
    (home.parent / "reader.py").write_text(READER)
    (home.parent / "itself.py").write_text(itself.replace('env.execute("Count")', STOPS_ITSELF))
    return four_slots


STOPS_ITSELF = """
job = env.execute_async("Count")
print(job.trigger_checkpoint())
print(job.trigger_savepoint("mine"))
print(job.stop_with_savepoint("mine", drain=True))
print(job.result().status)
try:
    job.trigger_savepoint()
except CheckpointFailedError as error:
    print(error)
"""


HANGS = """
import sys
import time
from pathlib import Path
from tailrace import StreamExecutionEnvironment

folder = sys.argv[1]

def hangs(value: int) -> int:
    if Path(folder, "hang").exists():
        Path(folder, "hangs").touch()
        time.sleep(3600)
    return value

env = StreamExecutionEnvironment.get_execution_environment()
env.generate(lambda i: i, rate_per_second=50, output_type=int).map(hangs).print()
env.execute("hangs")
"""


def started(cluster: Cluster, *arguments: str) -> str:
    return cluster.ok(
        "run", "-d", "-D", "execution.checkpointing.interval=1s", *arguments[1:], arguments[0], SLOWLY
    ).stdout.strip()


def printed(cluster: Cluster, job_id: str) -> Counter[str]:
    return Counter(line.partition("> ")[2] for line in cluster.ok("output", job_id).stdout.splitlines())


def last_of(cluster: Cluster, job_id: str) -> dict[str, object]:
    """Waits for a complete checkpoint, and returns what `checkpoints` prints about the newest one."""

    def complete() -> list[dict[str, object]]:
        reports = cluster.ok("checkpoints", job_id, "-o", "json").stdout.splitlines()
        return [report for report in map(json.loads, reports) if report["status"] == "COMPLETED"]

    return wait_until(complete, "completed checkpoint")[-1]


@pytest.fixture(scope="module")
def stopped(cluster: Cluster) -> tuple[str, str]:
    """Returns a job that was stopped with a savepoint in the middle of its work, and the location of that."""
    job_id = started(cluster, "count.py", "-p", "2")
    result = last_of(cluster, job_id)
    assert result["acknowledged"] == len(result["subtasks"]) == 4  # type: ignore[arg-type]
    completed_process = cluster.ok("checkpoint", job_id)
    assert "4 subtasks to acknowledge" in completed_process.stderr
    assert Path(completed_process.stdout.strip()).name.startswith("chk-")
    kept = cluster.ok("savepoint", "trigger", job_id, "--target", "here", "-o", "json")
    savepoint = json.loads(kept.stdout)
    assert (savepoint["snapshot_type"], savepoint["subtasks"]) == ("SAVEPOINT", 4)
    assert Path(savepoint["uri"]).parent == cluster.home.parent / "here"
    done = cluster.ok("stop", job_id)
    assert f"job {job_id} is FINISHED" in done.stderr
    return job_id, done.stdout.strip()


def test_savepoint_inspect_shows_content_and_verifies_files(
    cluster: Cluster, stopped: tuple[str, str]
) -> None:
    job_id, path = stopped
    shown = json.loads(cluster.ok("savepoint", "inspect", path, "--verify", "-o", "json").stdout)
    assert (shown["job_id"], shown["faults"]) == (job_id, [])
    source, count = shown["vertices"]
    assert [item["in_flight"] for item in [*source["subtasks"], *count["subtasks"]]] == [0] * 4
    assert all(element["size"] > 0 for element in source["subtasks"])
    assert sum(value["size"] for value in count["operators"]) > 0


def test_output_of_two_jobs_equals_that_of_one(cluster: Cluster, stopped: tuple[str, str]) -> None:
    job_id, path = stopped
    before = printed(cluster, job_id)
    assert 0 < before.total() < RECORDS
    again = cluster.ok("run", "-p", "4", "-s", path, "count.py", QUICKLY)
    successor = again.stderr.partition("job ")[2].partition(" ")[0]
    whole = Counter(
        {str((f"key {key}", count)): 1 for key in range(KEYS) for count in range(1, RECORDS // KEYS + 1)}
    )
    assert before + printed(cluster, successor) == whole
    shown = json.loads(cluster.ok("show", successor, "-o", "json").stdout)
    assert shown["status"] == "FINISHED"
    assert shown["checkpoints"]["restored"]["uri"] == path


def test_unassigned_state_is_rejected_unless_allowed(cluster: Cluster, stopped: tuple[str, str]) -> None:
    _, path = stopped
    refused = cluster.run("run", "-s", path, "changed.py", QUICKLY)
    assert refused.returncode == ExitCode.JOB
    assert "there is state of operator" in refused.stderr.splitlines()[-1]
    job_id = started(cluster, "changed.py", "-s", path, "--allow-non-restored-state")
    last_of(cluster, job_id)
    busy = cluster.run("savepoint", "dispose", path)
    assert (busy.returncode, busy.stderr) == (
        ExitCode.SAVEPOINT,
        f"tailrace: job {job_id} started from it and may need it again: end the job first\n",
    )
    cluster.ok("cancel", job_id)


def test_unused_savepoint_is_disposed_of(cluster: Cluster, stopped: tuple[str, str]) -> None:
    job_id, path = stopped
    ended = cluster.run("savepoint", "trigger", job_id)
    assert (ended.returncode, ended.stderr) == (
        ExitCode.JOB,
        f"tailrace: job {job_id} is already FINISHED: no savepoint can be taken\n",
    )
    cluster.ok("savepoint", "dispose", path)
    assert not Path(path).exists()
    for command in (("savepoint", "inspect", path), ("run", "-s", path, "count.py", QUICKLY)):
        result = cluster.run(*command)
        assert result.returncode == ExitCode.NOT_FOUND
        assert result.stderr == f"tailrace: {path} is not a checkpoint or savepoint: it does not exist\n"


def test_hung_job_is_killed_and_restarts_from_last_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    (cluster.home.parent / "hangs.py").write_text(HANGS)
    options = ("-d", "-D", "execution.checkpointing.interval=1s")
    job_id = cluster.ok("run", *options, "hangs.py", str(tmp_path)).stdout.strip()
    last_of(cluster, job_id)
    (tmp_path / "hang").touch()
    wait_until((tmp_path / "hangs").exists, "the function that hangs")
    with cluster.popen("stop", job_id) as stopping:
        assert stopping.stderr is not None
        wait_until(lambda: "stop --force" in stopping.stderr.readline(), "offer of --force")
        stopping.kill()
    result = cluster.ok("stop", "--force", job_id)
    assert f"job {job_id} is CANCELED" in result.stderr
    kept = result.stdout.strip()
    assert Path(kept).name.startswith("chk-")
    cluster.ok("savepoint", "inspect", kept, "--verify")


def test_program_takes_savepoints_of_its_job_and_stops_it(cluster: Cluster) -> None:
    result = cluster.ok("run", "-p", "2", "itself.py", SLOWLY)
    events = [line for line in result.stdout.splitlines() if "> (" not in line]
    taken, kept, last, status, refused = events
    assert Path(taken).name.startswith("chk-")
    for path in (kept, last):
        assert Path(path).parent == cluster.home.parent / "mine"
        cluster.ok("savepoint", "inspect", path, "--verify")
    assert status == "FINISHED"
    assert refused.endswith("has ended already: FINISHED")


def test_offsets_are_reset_in_copy_of_savepoint(cluster: Cluster) -> None:
    servers = Topics(cluster.record.bootstrap_servers)
    topic = servers.new(partitions=2)
    each = 20
    everything = Counter({f"{partition}:{offset}": 1 for partition in range(2) for offset in range(each)})
    for partition in range(2):
        times = [1_000_000 + 1_000 * offset for offset in range(each)]
        servers.write(topic, [b"x"] * each, partition, times)
    job_id = cluster.ok("run", "-d", "-p", "2", "reader.py", topic, "unbounded").stdout.strip()
    wait_until(lambda: printed(cluster, job_id) == everything, "all records")
    running = cluster.run("offsets", "reset", job_id, "--to-earliest")
    assert running.returncode == ExitCode.JOB
    assert (
        f"only the offsets of a paused or stopped job can be reset: `tailrace pause {job_id}`"
        in running.stderr
    )
    path = cluster.ok("stop", job_id).stdout.strip()

    def shown(*target: str) -> list[tuple[int, int, int]]:
        found = json.loads(cluster.ok("offsets", "reset", job_id, "--dry-run", "-o", "json", *target).stdout)
        assert (found["from_savepoint"], found["savepoint"]) == (path, None)
        assert {offset["topic"] for offset in found["offsets"]} <= {topic}
        return [(offset["partition"], offset["from"], offset["to"]) for offset in found["offsets"]]

    assert shown("--to-earliest", "--topic", topic) == [(0, each, 0), (1, each, 0)]
    assert shown("--to-datetime", "1970-01-01T00:16:45.500+00:00") == [(0, each, 6), (1, each, 6)]
    servers.write(topic, [b"later"] * 3, 1)
    assert shown("--to-latest") == [(0, each, each), (1, each, each + 3)]
    for arguments, message in {
        (
            "--to-offset",
            f"{topic}:0=21",
        ): f"offset 21 of {topic}:0 is out of range: the partition begins at 0 and ends at 20",
        (
            "--to-offset",
            f"{topic}:2=0",
        ): f"the savepoint has no position of {topic}:2: it has {topic}:0, {topic}:1",
        (
            "--to-latest",
            "--topic",
            "clicks",
        ): f"the savepoint has no position of topic clicks: it has {topic}",
    }.items():
        assert cluster.run("offsets", "reset", path, *arguments).stderr == f"tailrace: {message}\n"

    reset = cluster.ok("offsets", "reset", path, "--to-offset", f"{topic}:0=13", "--target", "resets")
    copy = reset.stdout.strip()
    assert reset.stderr.splitlines()[-1].split()[-4:] == [topic, "0", str(each), "13"]
    assert Path(copy).parent == cluster.home.parent / "resets"
    # The copy needs nothing of the first savepoint.
    cluster.ok("savepoint", "dispose", path)
    again = cluster.ok("run", "-p", "1", "-s", copy, "reader.py", topic, "bounded")
    successor = again.stderr.partition("job ")[2].partition(" ")[0]
    read_again = {f"0:{offset},0:{offset}": 1 for offset in range(13, each)}
    new = {f"1:{offset}": 1 for offset in range(each, each + 3)}
    assert printed(cluster, successor) == Counter(read_again | new)


def test_paused_job_continues_from_reset_offsets_with_its_state(cluster: Cluster) -> None:
    servers = Topics(cluster.record.bootstrap_servers)
    topic, each = servers.new(partitions=2), 20
    for partition in range(2):
        servers.write(topic, [b"x"] * each, partition)
    everything = Counter({f"{partition}:{offset}": 1 for partition in range(2) for offset in range(each)})
    job_id = cluster.ok("run", "-d", "-p", "2", "reader.py", topic, "unbounded").stdout.strip()
    wait_until(lambda: printed(cluster, job_id) == everything, "all records")
    cluster.ok("pause", job_id)

    def positions() -> dict[int, int]:
        lines = map(json.loads, cluster.ok("offsets", "show", job_id, "-o", "json").stdout.splitlines())
        return {line["partition"]: line["position"] for line in lines}

    def reset(*target: str) -> list[tuple[int, int, int]]:
        found = json.loads(cluster.ok("offsets", "reset", job_id, "-o", "json", *target).stdout)
        assert found["job_id"] == job_id
        return [(offset["partition"], offset["from"], offset["to"]) for offset in found["offsets"]]

    before = positions()
    assert [to for *_, to in reset("--to-earliest", "--dry-run")] == [0, 0]
    assert positions() == before
    refused = cluster.run("offsets", "reset", job_id, "--to-offset", f"{topic}:2=0").stderr
    assert refused == f"tailrace: job {job_id} has no position of {topic}:2: it has {topic}:0, {topic}:1\n"
    assert [to for *_, to in reset("--to-earliest")] == [0, 0]
    servers.write(topic, [b"later"] * 3, 1)
    # The last reset of a partition counts.
    assert reset("--to-latest") == [(0, 0, each), (1, 0, each + 3)]
    assert reset("--to-offset", f"{topic}:0=15") == [(0, each, 15)]
    assert positions() == {0: 15, 1: each + 3}
    cluster.ok("resume", job_id)
    servers.write(topic, [b"new"], 1)
    read_again = {f"0:{offset},0:{offset}": 1 for offset in range(15, each)}
    after = everything + Counter(read_again) + Counter({f"1:{each + 3}": 1})
    wait_until(lambda: printed(cluster, job_id) == after, "the records from the new positions on")
    wait_until(lambda: positions() == {0: each, 1: each + 4}, "the copies of the positions")
    # The reset is committed: another attempt does not repeat it.
    cluster.ok("restart", job_id)
    servers.write(topic, [b"new"], 0)
    after += Counter({f"0:{each}": 1})
    wait_until(lambda: printed(cluster, job_id) == after, "what the next attempt reads")
    cluster.ok("cancel", job_id)
