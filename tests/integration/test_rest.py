"""REST on a real cluster: the master and a gateway answer alike, and a request sent to both is one request."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from certificates import CertificateAuthority
from kafka_topics import Topics
from playwright.sync_api import Browser, expect
from polling import wait_until

from tailrace.infra.server_socket import listen
from tailrace.infra.tls import client_context
from tailrace.schemas.client import JobStatusChanged
from tailrace.schemas.types import JobStatus
from tailrace.services.configuration import Configuration
from tailrace.services.log.factory import create_admin_client, open_event_log
from tailrace.services.log.topics import ensure_cluster_topics, submissions_topic
from tailrace.services.rest import requests
from tailrace.services.rest.application import Settings
from tailrace.services.rest.assembly import ReplicaServer

from ..services.rest.live_server import append, golden_records
from .test_cluster import Cluster

pytestmark = pytest.mark.timeout(400)

PROGRAM = """
from tailrace import StreamExecutionEnvironment


def numbered(number: int) -> tuple[str, int]:
    return f"key {number % 10}", 1


env = StreamExecutionEnvironment.get_execution_environment()
env.generate(numbered, count=1_000_000, rate_per_second=40.0).key_by(0).sum(1).print()
env.execute("Numbers")
"""


TOKEN = "0123456789abcdef"
BOUNDED_PROGRAM = """
import sys

from tailrace import StreamExecutionEnvironment


def twice(number: int) -> int:
    return 2 * number


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(twice).print()
env.execute(sys.argv[1])
"""


class Rest:
    """A client of one server."""

    def __init__(self, address: str) -> None:
        self.base = f"http://{address}"

    def send(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Returns status, body and headers."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error), dict(error.headers)

    def upload(self, name: str, content: bytes) -> Any:
        """Uploads a program, as a form of a browser does."""
        head = f'--x\r\nContent-Disposition: form-data; name="jarfile"; filename="{name}"\r\n\r\n'
        request = urllib.request.Request(
            f"{self.base}/jars/upload",
            head.encode() + content + b"\r\n--x--\r\n",
            {"Content-Type": "multipart/form-data; boundary=x"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def get(self, path: str) -> Any:
        status, body, _ = self.send("GET", path)
        assert status == 200, body
        return body


@pytest.fixture(scope="module")
def master(four_slots: Cluster) -> Rest:
    (found,) = json.loads(four_slots.ok("cluster", "status", "-o", "json").stdout)["masters"]
    return Rest(found["endpoints"]["rest"])


@pytest.fixture(scope="module")
def gateway(four_slots: Cluster) -> Iterator[Rest]:
    with four_slots.popen("gateway") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("the REST API is at http://"), line
        yield Rest(line.strip().partition("http://")[2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def job(four_slots: Cluster, master: Rest) -> str:
    """Returns Flink's id of a job that runs."""
    (four_slots.home.parent / "steady_numbers.py").write_text(PROGRAM)
    own = four_slots.ok("run", "-d", "-p", "2", "steady_numbers.py").stdout.strip()
    job_id = own[-32:]

    def is_running() -> bool:
        counts = master.get(f"/jobs/{own}")["status-counts"]
        return bool(counts["RUNNING"] == sum(counts.values()) > 0)

    wait_until(is_running, f"job {job_id} to run")
    return job_id


def test_master_and_gateway_answer_alike(master: Rest, gateway: Rest, job: str) -> None:
    _, _, headers = master.send("GET", f"/jobs/{job}")
    at = headers["tailrace-offset"]
    for path in ("/overview", "/jobs/overview", f"/jobs/{job}", f"/jobs/{job}/plan", "/taskmanagers"):
        assert master.get(f"{path}?at={at}") == gateway.get(f"/v1{path}?at={at}")
    first = master.get("/jobs/overview?at=0")
    assert job not in {each["jid"] for each in first["jobs"]}
    assert "tailrace-lag" not in gateway.send("GET", f"/jobs/overview?at={at}")[2]
    wait_until(lambda: gateway.send("GET", "/jobs/overview")[2]["tailrace-lag"] == "0", "a current answer")


def vertices_of(server: Rest, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/jobs/{job}")["vertices"]
    return found


def test_figures_of_running_tasks_are_those_of_their_processes(master: Rest, gateway: Rest, job: str) -> None:
    """The log has none of them: a server asks the TaskExecutor."""

    def have_counted() -> bool:
        source, sums = (each["metrics"] for each in vertices_of(gateway, job))
        return bool(0 < sums["read-records"] <= source["write-records"])

    wait_until(have_counted, "records to arrive at the sums")
    source, sums = vertices_of(master, job)
    names = ("read-bytes", "write-bytes", "read-records", "write-records")
    assert all(source["metrics"][f"{name}-complete"] for name in names)
    assert source["metrics"]["accumulated-idle-time"] + source["metrics"]["accumulated-busy-time"] > 0
    path = f"/jobs/{job}/vertices/{sums['id']}"
    rates = "numRecordsInPerSecond,busyTimeMsPerSecond,idleTimeMsPerSecond,backPressuredTimeMsPerSecond"
    found = {each["id"]: each for each in master.get(f"{path}/subtasks/metrics?get={rates}&agg=sum,max")}
    assert list(found) == rates.split(",")
    assert found["numRecordsInPerSecond"]["sum"] > 0
    parts = [each["sum"] for name, each in found.items() if "Ms" in name]
    assert sum(parts) == pytest.approx(2_000, rel=0.01)
    assert set(found["numRecordsInPerSecond"]) == {"id", "sum", "max"}
    (one,) = master.get(f"{path}/metrics?get=1.numRecordsIn")
    (same,) = master.get(f"{path}/subtasks/1/metrics?get=numRecordsIn")
    assert int(same["value"]) >= int(one["value"]) > 0
    pressure = master.get(f"{path}/backpressure")
    assert pressure["status"] == "ok"
    assert [each["subtask"] for each in pressure["subtasks"]] == [0, 1]
    assert all(each["ratio"] + each["idleRatio"] + each["busyRatio"] <= 1.01 for each in pressure["subtasks"])
    assert [each["id"] for each in master.get(f"{path}/watermarks")] == [
        f"{number}.currentInputWatermark" for number in (0, 1)
    ]
    (heap,) = master.get("/taskmanagers/metrics?get=Status.JVM.Memory.Heap.Max&agg=min")
    assert heap["min"] > 0
    (restarts,) = gateway.get(f"/jobs/{job}/metrics?get=numRestarts")
    assert restarts == {"id": "numRestarts", "value": "0"}


def text_of(server: Rest, path: str) -> tuple[str, int]:
    """Returns lines of a log, and the offset of the next ones."""
    with urllib.request.urlopen(server.base + path, timeout=60) as answer:
        return answer.read().decode(), int(answer.headers["Tailrace-Log-Next"])


def test_logs_and_threads_of_all_processes_are_served(master: Rest, gateway: Rest, job: str) -> None:
    (worker,) = master.get("/taskmanagers")["taskmanagers"]
    for process, line, thread in (
        ("/jobmanager", "jobmanager starts", "MainThread"),
        (f"/taskmanagers/{worker['id']}", "taskexecutor registers", "runtime"),
    ):
        for server in (master, gateway):
            names = [each["name"] for each in server.get(f"{process}/logs")["logs"]]
            assert len(names) >= 2
            log, following = text_of(server, f"{process}/log")
            assert line in log
            assert text_of(server, f"{process}/log?offset={following}")[1] >= following
            assert any(line in text_of(server, f"{process}/logs/{name}")[0] for name in names)
            dump = server.get(f"{process}/thread-dump")["threadInfos"]
            assert any(thread in each["threadName"] for each in dump)
        assert master.send("GET", f"{process}/logs/..%2F..%2Fetc%2Fpasswd")[0] == 404


def test_flame_graph_and_threads_show_stream_tasks(master: Rest, job: str) -> None:
    (worker,) = master.get("/taskmanagers")["taskmanagers"]
    _, sums = vertices_of(master, job)
    path = f"/jobs/{job}/vertices/{sums['id']}/flamegraph"
    full = master.get(path)["data"]
    assert full["value"] == 2 * 50
    (first,) = full["children"]
    assert first["value"] == full["value"]
    assert "TaskGroup.invoke" in json.dumps(full)
    assert master.get(f"{path}?subtaskindex=1&type=off_cpu")["data"]["value"] <= 50
    dump = master.get(f"/taskmanagers/{worker['id']}/thread-dump")["threadInfos"]
    assert sum(each["threadName"].startswith("StreamTask ") for each in dump) >= 3


def test_past_moment_has_no_live_figures(master: Rest, job: str) -> None:
    _, _, headers = master.send("GET", f"/jobs/{job}")
    at = headers["tailrace-offset"]
    for vertex in master.get(f"/jobs/{job}?at={at}")["vertices"]:
        assert not vertex["metrics"]["read-records-complete"]
        path = f"/jobs/{job}/vertices/{vertex['id']}"
        assert master.get(f"{path}/metrics?at={at}") == []
        assert master.get(f"{path}/backpressure?at={at}") == {"status": "deprecated"}


def test_savepoint_requested_twice_of_two_servers_is_one(master: Rest, gateway: Rest, job: str) -> None:
    asked = {"triggerId": "5" * 32}
    path = f"/jobs/{job}/savepoints"

    def list_savepoints() -> list[str]:
        history = master.get(f"/jobs/{job}/checkpoints")["history"]
        return [each["external_path"] for each in history if each["is_savepoint"]]

    earlier = list_savepoints()
    assert master.send("POST", path, asked)[:2] == (202, {"request-id": "5" * 32})
    assert gateway.send("POST", path, asked)[:2] == (202, {"request-id": "5" * 32})

    def find_location() -> str | None:
        found = gateway.get(f"{path}/{'5' * 32}")
        assert "failure-cause" not in found.get("operation", {})
        location: str | None = found.get("operation", {}).get("location")
        return location

    location = wait_until(find_location, "the savepoint to be complete")
    wait_until(lambda: len(list_savepoints()) > len(earlier), "the savepoint to be in the history")
    assert set(list_savepoints()) == {location, *earlier}
    assert master.send("GET", f"{path}/{'6' * 32}")[0] == 404
    status, begun, _ = gateway.send("POST", "/savepoint-disposal", {"savepoint-path": location})
    assert status == 200
    disposal = f"/savepoint-disposal/{begun['request-id']}"
    deleted = {"status": {"id": "COMPLETED"}, "operation": {}}
    # The master may read the request a little later than the gateway.
    wait_until(lambda: master.send("GET", disposal)[:2] == (200, deleted), "the savepoint to be deleted")
    assert not Path(location.removeprefix("file://")).exists()


def test_command_line_works_without_kafka(four_slots: Cluster, gateway: Rest, job: str) -> None:
    own = next(
        each["fields"]["job_id"]
        for each in gateway.get(f"/api/v1/events?job={job}&type=JobAccepted")["events"]
    )
    rest = ("--rest", gateway.base)
    (listed,) = map(json.loads, four_slots.ok(*rest, "list", "--name", own, "-o", "json").stdout.splitlines())
    assert (listed["job_id"], listed["status"]) == (own, "RUNNING")
    taken = json.loads(four_slots.ok(*rest, "checkpoint", own, "-o", "json").stdout)
    saved = json.loads(four_slots.ok(*rest, "savepoint", "trigger", own, "-o", "json").stdout)
    assert saved["checkpoint_id"] > taken["checkpoint_id"]
    lines = four_slots.ok(*rest, "log", "--job", own, "-o", "json").stdout.splitlines()
    start, found = 0, []
    while (page := gateway.get(f"/api/v1/events?job={job}&from={start}&limit=1000"))["events"]:
        found += [each["offset"] for each in page["events"]]
        start = page["next"]
    assert found[: len(lines)] == [json.loads(line)["offset"] for line in lines]
    overview = gateway.get("/api/v1/log?buckets=20")
    assert sum(bucket["events"] for bucket in overview["buckets"]) == overview["events"]
    assert {"leader", "job"} <= {mark["kind"] for mark in overview["marks"]}


def test_page_names_the_event_that_an_action_became(browser: Browser, gateway: Rest, job: str) -> None:
    page = browser.new_page()
    page.goto(f"{gateway.base}/#/jobs/{job}")
    page.get_by_role("button", name="Take checkpoint").click()
    outcome = page.get_by_text("The job takes a checkpoint.")
    expect(outcome).to_be_visible(timeout=30_000)
    offset = int(outcome.get_by_role("link").inner_text())
    assert gateway.get(f"/api/v1/events/{offset}")["type"] == "job_master.TriggerCheckpoint"
    page.close()


def test_page_follows_log_files_of_processes(browser: Browser, gateway: Rest, job: str) -> None:
    (executor,) = (each["id"] for each in gateway.get("/taskmanagers")["taskmanagers"])
    page = browser.new_page()
    for process, path in (("jobmanager", "/jobmanager"), (executor, f"/taskmanagers/{executor}")):
        (newest, *_) = gateway.get(f"{path}/logs")["logs"]
        with urllib.request.urlopen(f"{gateway.base}{path}/logs/{newest['name']}") as answer:
            first_line = answer.readline().decode().strip()
        page.goto(f"{gateway.base}/#/logs/{process}/{newest['name']}")
        expect(page.locator(".log-lines")).to_contain_text(first_line)
    page.close()


def test_output_of_job_is_followed(browser: Browser, four_slots: Cluster, gateway: Rest, job: str) -> None:
    """By pages of REST, and on the page. Both have the lines of `tailrace output`."""
    path = f"/api/v1/jobs/{job}/output"
    last = gateway.get(f"{path}?limit=5")
    assert len(last["lines"]) == 5
    own = gateway.get(f"/api/v1/jobs/{job}")["job"]["job_id"]
    printed = four_slots.ok("output", own).stdout.splitlines()
    found: list[dict[str, Any]] = []
    start = 0
    while len(found) < len(printed):
        page = gateway.get(f"{path}?from={start}&limit=999")
        found += page["lines"]
        start = page["next"]
    assert [f"{each['subtask']}> {each['text']}" for each in found][: len(printed)] == printed
    assert [each for each in found if each["offset"] < last["next"]][-5:] == last["lines"]
    whole = gateway.get(f"{path}?limit=10000")["lines"]
    assert whole[: len(found)] == found
    shown = browser.new_page()
    shown.goto(f"{gateway.base}/#/jobs/{job}/output")
    expect(shown.locator(".log-lines")).to_contain_text(printed[-1])
    shown.close()


def test_topics_are_those_of_cluster_and_its_jobs(
    browser: Browser, four_slots: Cluster, gateway: Rest, job: str
) -> None:
    topics = {each["name"]: each for each in gateway.get("/api/v1/topics")["topics"]}
    cluster = four_slots.configuration.cluster_id
    own = gateway.get(f"/api/v1/jobs/{job}")["job"]["job_id"]
    (log,) = topics[f"{cluster}.log"]["partitions"]
    assert (log["first"], topics[f"{cluster}.log"]["job_id"]) == (0, None)
    assert log["end"] > gateway.get(f"/api/v1/events?job={job}&type=JobAccepted")["events"][0]["offset"]
    of_job = {name for name, each in topics.items() if each["job_id"] == own}
    assert f"{cluster}.job.{own}.output" in of_job
    assert {len(topics[name]["partitions"]) for name in of_job} == {1, 2}
    assert topics[f"{cluster}.log"]["size"] > log["end"]
    readers = wait_until(
        lambda: [each for each in gateway.get("/api/v1/topics")["readers"] if each["job_id"] == own],
        "the positions of the job, which it copies every 5 s",
    )
    vertices = {each["id"]: each["name"] for each in gateway.get(f"/v1/jobs/{job}")["vertices"]}
    for each in readers:
        assert each["topic"] in of_job
        assert vertices[each["vertex_id"]] == each["vertex"]
        assert each["lag"] >= 0
    page = browser.new_page()
    page.goto(f"{gateway.base}/#/cluster")
    page.get_by_role("heading", name="Topics").scroll_into_view_if_needed()
    expect(page.get_by_role("link", name=f"{cluster}.job.{own}.output")).to_be_visible()
    expect(page.get_by_role("region", name="What jobs read")).to_contain_text(readers[0]["vertex"])
    page.close()


def wait_for_tasks(server: Rest, job: str, parallelism: int) -> None:
    """Waits until all subtasks of the job run with this parallelism."""

    def is_running() -> bool:
        found = server.get(f"/jobs/{job}")
        tasks = found["status-counts"]
        return (
            {each["parallelism"] for each in found["vertices"]} == {parallelism}
            and tasks["RUNNING"] == sum(tasks.values()) > 0
            and found["state"] == "RUNNING"
        )

    wait_until(is_running, f"job {job} to run with parallelism {parallelism}")


def test_job_is_controlled_by_rest(master: Rest, gateway: Rest, job: str) -> None:
    """Quarantine, drain, release, rescale, restart, pause and resume: each is a request to one server, and the other
    one shows what came of it."""

    def post(path: str, body: object = None, expected: int = 202) -> Any:
        status, answer, headers = gateway.send("POST", f"/api/v1{path}", body)
        assert status == expected, answer
        if expected < 400:
            known = int(headers["tailrace-offset"])
            wait_until(lambda: int(master.send("GET", "/overview")[2]["tailrace-offset"]) >= known, "it")
        return answer

    def blocked() -> tuple[bool, int]:
        (executor,) = master.get("/taskmanagers")["taskmanagers"]
        overview = master.get("/overview")
        return executor.get("blocked", False), overview.get("taskmanagers-blocked", 0)

    wait_for_tasks(master, job, 2)
    (executor,) = master.get("/taskmanagers")["taskmanagers"]
    host = executor["path"].partition(":")[0]
    for mode, name in (("QUARANTINED", {"taskExecutor": executor["id"]}), ("DRAINING", {"host": host})):
        post("/quarantines", {**name, "mode": mode, "reason": "a test"}, 200)
        (found,) = master.get("/api/v1/quarantines")["quarantines"]
        assert (found["mode"], found["reason"], found["heldSlots"] > 0) == (mode, "a test", True)
        assert blocked() == (True, 1)
        post("/quarantines", {**name, "mode": "RELEASED"}, 200)
        assert master.get("/api/v1/quarantines")["quarantines"] == []
        assert blocked() == (False, 0)
    post("/quarantines", {"mode": "RELEASED"}, 400)

    post(f"/jobs/{job}/rescale", {"parallelism": 1}, 200)
    wait_for_tasks(master, job, 1)
    bounds = {
        vertex["id"]: {"parallelism": {"lowerBound": 1, "upperBound": 2}}
        for vertex in vertices_of(master, job)
    }
    assert gateway.send("PUT", f"/v1/jobs/{job}/resource-requirements", bounds)[0] == 200
    wait_for_tasks(master, job, 2)

    (source, *_) = vertices_of(master, job)
    first = f"/jobs/{job}/vertices/{source['id']}/subtasks/0"
    before = master.get(first)["attempt"]
    post(f"/jobs/{job}/restart", {"vertex": source["id"], "subtask": 0})
    wait_until(lambda: master.get(first)["attempt"] > before, "another attempt")
    wait_for_tasks(master, job, 2)
    post(f"/jobs/{job}/restart", {"vertex": "nobody"}, 404)
    post(f"/jobs/{job}/restart", {"vertex": source["id"], "subtask": 2}, 404)

    interval, configuration = "execution.checkpointing.interval", f"/api/v1/jobs/{job}/configuration"
    assert gateway.send("PATCH", configuration, {interval: "1 h"})[0] == 202
    changed = [each["key"] for each in gateway.get(configuration)["options"] if each["isChanged"]]
    assert changed == [interval]
    assert gateway.send("PATCH", configuration, {"state.backend.type": "rocksdb"})[0] == 400

    post(f"/jobs/{job}/pause")
    wait_until(lambda: master.get(f"/jobs/{job}/status") == {"status": "SUSPENDED"}, "the job to pause")
    post(f"/jobs/{job}/restart", {}, 409)
    post(f"/jobs/{job}/resume")
    wait_for_tasks(master, job, 2)


def test_job_is_cancelled_once(master: Rest, gateway: Rest, job: str) -> None:
    assert gateway.send("PATCH", f"/jobs/{job}", None, **{"Idempotency-Key": "x"})[0] == 202
    wait_until(lambda: master.get(f"/jobs/{job}/status") == {"status": "CANCELED"}, "the job to be cancelled")
    assert master.send("PATCH", f"/jobs/{job}?mode=cancel")[0] == 202
    assert master.get(f"/jobs/{job}")["vertices"]
    assert master.send("PATCH", f"/jobs/{'0' * 32}")[0] == 404
    assert master.send("POST", f"/jobs/{job}/stop", {})[0] == 404


def test_program_runs_without_kafka(four_slots: Cluster, gateway: Rest) -> None:
    (four_slots.home.parent / "three_numbers.py").write_text(BOUNDED_PROGRAM)
    run = ("--rest", gateway.base, "run", "-p", "1", "-o", "json")
    *output, last = map(json.loads, four_slots.ok(*run, "three_numbers.py", "Three").stdout.splitlines())
    result = last["job"]
    assert (result["name"], result["status"]) == ("Three", "FINISHED")
    printed = four_slots.ok("output", result["job_id"]).stdout.splitlines()
    assert sorted(printed) == ["1> 2", "1> 4", "1> 6"]
    assert len(output) == len(printed), output
    # The program has no argument now.
    failed = four_slots.run(*run, "three_numbers.py")
    assert (failed.returncode, failed.stdout) == (1, "")
    (line,) = failed.stderr.splitlines()
    assert "IndexError" in line


def test_uploaded_program_runs_once_by_key_and_outlives_its_file(master: Rest, gateway: Rest) -> None:
    """The file has more than a megabyte, so the job gets it as a blob."""
    source = PROGRAM.replace("env = ", "def main(*_: str) -> None:\n    env = ").replace(
        "\nenv.", "\n    env."
    )
    uploaded = gateway.upload("numbers_of_june.py", source.encode() + b"#" * (2 << 20))
    program_id = uploaded["filename"].rpartition("/")[2]
    assert [each["id"] for each in master.get("/jars")["files"]].count(program_id) == 1
    body = {"entryClass": "numbers_of_june:main", "parallelism": 1, "programArgs": "a b"}
    plan = gateway.send("POST", f"/jars/{program_id}/plan", body)[1]["plan"]
    runs = [
        server.send("POST", f"/jars/{program_id}/run", body, **{"Idempotency-Key": "numbers-of-June"})
        for server in (master, gateway)
    ]
    assert [status for status, _, _ in runs] == [200] * 2, runs
    (job_id,) = {found["jobid"] for _, found, _ in runs}
    assert master.send("DELETE", f"/jars/{program_id}")[0] == 200
    assert gateway.send("POST", f"/jars/{program_id}/run", body)[0] == 404
    wait_until(
        lambda: master.get(f"/jobs/{job_id}")["status-counts"]["RUNNING"] == len(plan["nodes"]),
        "the tasks of the uploaded program to run",
    )
    nodes = master.get(f"/jobs/{job_id}/plan")["plan"]["nodes"]
    assert [each["id"] for each in nodes] == [each["id"] for each in plan["nodes"]]
    assert master.send("PATCH", f"/jobs/{job_id}")[0] == 202


def test_page_uploads_and_runs_program(browser: Browser, gateway: Rest) -> None:
    page = browser.new_page()
    page.goto(f"{gateway.base}/#/submit/programs")
    file = {"name": "numbers_of_july.py", "mimeType": "text/x-python", "buffer": PROGRAM.encode()}
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("link", name="Go to the job").click(timeout=60_000)
    expect(page.get_by_role("heading", level=1)).to_have_text("Numbers", timeout=60_000)
    job_id = page.url.rpartition("/")[2]
    page.close()
    assert gateway.send("PATCH", f"/jobs/{job_id}")[0] == 202
    (program,) = (each for each in gateway.get("/jars")["files"] if each["name"] == file["name"])
    assert gateway.send("DELETE", f"/jars/{program['id']}")[0] == 200


def test_submission_with_same_key_is_one_job(four_slots: Cluster, master: Rest, gateway: Rest) -> None:
    body = {
        "target": "tailrace.pipelines.examples.window_word_count:main",
        "arguments": ["--hostname", "127.0.0.1", "--port", "1"],
    }
    answers = [
        server.send("POST", "/api/v1/submissions", body, **{"Idempotency-Key": "numbers-of-May"})
        for server in (master, gateway, master)
    ]
    assert [status for status, _, _ in answers] == [201] * 3
    ((job_id, flink_id),) = {(found["job_id"], found["flink_job_id"]) for _, found, _ in answers}
    assert [each["id"] for each in master.get("/jobs")["jobs"]].count(flink_id) == 1
    assert four_slots.run("--rest", gateway.base, "cancel", job_id).returncode in (0, 1)
    assert master.send("PATCH", f"/jobs/{job_id}")[0] in (202, 409)


def test_without_leader_write_is_unavailable_and_reads_go_on(
    four_slots: Cluster, cluster_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of a cluster whose only master is gone: the log ends with a job that runs."""
    monkeypatch.setattr(requests, "_OUTCOME_TIMEOUT_S", 1.0)
    servers, records = four_slots.record.bootstrap_servers, golden_records("a_job_finishes")
    configuration = Configuration(
        {"home": str(tmp_path), "bootstrap.servers": servers, "cluster.id": cluster_id}
    )
    ensure_cluster_topics(create_admin_client(configuration), cluster_id)
    running, job = next(
        (number, record.body.job_id)
        for number, record in enumerate(records)
        if isinstance(record.body, JobStatusChanged) and record.body.status is JobStatus.RUNNING
    )
    with closing(open_event_log(configuration)) as log:
        append(log, records[: running + 1])
        end = log.end()
    writes = [
        ("PATCH", f"/jobs/{job}", None),
        ("POST", f"/jobs/{job}/savepoints", {}),
        ("POST", f"/jobs/{job}/stop", {}),
        ("POST", "/api/v1/submissions", {"target": "any_module:main"}),
    ]
    listening = listen("127.0.0.1", [0], 128)
    address = f"127.0.0.1:{listening.getsockname()[1]}"
    with (
        ReplicaServer(configuration, listening, Settings(), address=address),
        ThreadPoolExecutor(len(writes)) as clients,
    ):
        rest = Rest(address)
        waiting = [clients.submit(rest.send, *write) for write in writes]
        while not all(each.done() for each in waiting):
            status, body, headers = rest.send("GET", f"/jobs/{job}/status")
            assert (status, body) == (200, {"status": "RUNNING"})
            assert headers["tailrace-offset"] == str(end - 1)
        for status, body, headers in (each.result() for each in waiting):
            assert (status, headers["retry-after"]) == (503, "5"), body
            assert "no leader answered" in body["errors"][0]
        assert rest.get(f"/jobs/{job}/status") == {"status": "RUNNING"}
    # The next leader finds all requests.
    assert len(Topics(servers).read(submissions_topic(cluster_id), len(writes))) == len(writes)


def secured_options(directory: Path, principal: str) -> list[str]:
    """Returns options for a server with TLS and one principal, who has TOKEN."""
    certificate, principals = CertificateAuthority(directory).issue("gateway"), directory / "principals"
    principals.write_text(f"{principal} submitter sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    options = {
        "rest.principals-file": principals,
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.certificate": certificate,
    }
    return [part for name, value in options.items() for part in ("-D", f"{name}={value}")]


def test_job_is_stopped_with_token_and_tls(four_slots: Cluster, tmp_path: Path) -> None:
    (four_slots.home.parent / "steady_numbers.py").write_text(PROGRAM)
    (tmp_path / "token").write_text(TOKEN)
    with four_slots.popen("gateway", *secured_options(tmp_path, "nightly")) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rpartition(" ")[2]
        known = ("--rest-token-file", str(tmp_path / "token"), "--rest-ca", str(tmp_path / "authority.pem"))
        rest = ("--rest", url, *known)
        own = four_slots.ok(*rest, "run", "-d", "-p", "1", "steady_numbers.py").stdout.strip()
        status = json.loads(four_slots.ok(*rest, "cluster", "status", "-o", "json").stdout)
        assert {each["job_id"]: each["name"] for each in status["jobs"]}[own] == "Numbers"
        assert json.loads(four_slots.ok(*rest, "stop", own, "-o", "json").stdout)["job_id"] == own
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    story = four_slots.ok("story", own).stdout
    assert "nightly by REST server " in story


def test_submission_of_killed_server_is_one_job_of_its_principal(
    four_slots: Cluster, master: Rest, tmp_path: Path
) -> None:
    """The client of the killed server sends the request again, to another one."""
    key, options = "killed-in-the-middle", secured_options(tmp_path, "ci")
    body = {
        "target": "tailrace.pipelines.examples.window_word_count:main",
        "arguments": ["--hostname", "127.0.0.1", "--port", "1"],
    }
    content = json.dumps(body)
    trusting = client_context(str(tmp_path / "authority.pem"))
    with four_slots.popen("gateway", *options) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip().partition("https://")[2]
        host, _, port = address.partition(":")
        first = http.client.HTTPSConnection(host, int(port), timeout=60, context=trusting)
        headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key}
        first.request("DELETE", "/cluster", headers=headers)
        refused = first.getresponse()
        (message,) = json.load(refused)["errors"]
        assert (refused.status, message.endswith("needs the role operator.")) == (403, True)
        first.request("POST", "/api/v1/submissions", content, headers)

        def find_request() -> Any:
            found = master.get("/api/v1/events?type=SubmitJob&limit=1000")["events"]
            own = [each for each in found if (each["header"]["rest_origin"] or {}).get("principal") == "ci"]
            return own[0] if own else None

        submitted = wait_until(find_request, "the request to be in the log")
        process.kill()
        process.wait(60)
        first.close()
    assert submitted["header"]["rest_origin"] == {"principal": "ci", "server": address}
    status, answer, _ = master.send("POST", "/api/v1/submissions", body, **{"Idempotency-Key": key})
    assert (status, answer["job_id"]) == (201, submitted["fields"]["job_id"])
    assert [each["id"] for each in master.get("/jobs")["jobs"]].count(answer["flink_job_id"]) == 1
    story = four_slots.ok("story", answer["job_id"]).stdout
    assert f"ci by REST server {address} -> Dispatcher" in story
    assert master.send("PATCH", f"/jobs/{answer['job_id']}")[0] in (202, 409)
