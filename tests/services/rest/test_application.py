"""The HTTP shell: status codes and bodies of good and bad requests, without a cluster."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from starlette.testclient import TestClient

from tailrace.infra.open_telemetry import current_traceparent
from tailrace.schemas.event import Record
from tailrace.services.client.print_output import OutputPage, OutputRecord
from tailrace.services.diagnostics.client import DiagnosticsClient, ServerAddress
from tailrace.services.diagnostics.logs import LogFiles
from tailrace.services.diagnostics.server import DiagnosticsServer
from tailrace.services.diagnostics.stacks import STACKS, Stack, serve_stacks
from tailrace.services.diagnostics.threads import THREADS, serve_threads
from tailrace.services.election.candidates import Candidate
from tailrace.services.history import HistoryProjection, cluster_view
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.log_source import LogSource
from tailrace.services.history.time_travel import cluster_moment, replica_at
from tailrace.services.log import LogUnavailable
from tailrace.services.log.event_log import read_to_end
from tailrace.services.log.topic_extents import ConsumedTopic, PartitionExtent, TopicExtent
from tailrace.services.rest.api import blobs, masters, state
from tailrace.services.rest.api.blobs import BlobContents
from tailrace.services.rest.api.job_offsets import JobOffsets, job_offset_endpoints
from tailrace.services.rest.api.topics import ClusterTopics, topic_endpoints
from tailrace.services.rest.application import Settings, create_application
from tailrace.services.rest.commands import flink_commands, own_commands, program_commands
from tailrace.services.rest.diagnostics import Diagnostics, diagnostics_endpoints, find_address
from tailrace.services.rest.endpoint import Answer
from tailrace.services.rest.errors import NotFound, Unavailable
from tailrace.services.rest.event_feed import EventFeed
from tailrace.services.rest.flink import job_list, jobs, operations
from tailrace.services.rest.flink.endpoints import READS, UNSUPPORTED, log_url_endpoint
from tailrace.services.rest.flink.plan import JobPlan, Plan
from tailrace.services.rest.flink.taskmanagers import diagnostics_addresses
from tailrace.services.rest.live_replica import LiveReplica
from tailrace.services.rest.log_endpoints import log_endpoints
from tailrace.services.rest.moment import Moment
from tailrace.services.rest.past_moments import MomentCache, PastMoments
from tailrace.services.rest.program_requests import (
    PlanBody,
    ProgramFiles,
    RunBody,
    RunResult,
    UploadResult,
    read_request,
)
from tailrace.services.rest.uploads import UploadedFile

LOG = Path(__file__).parents[2] / "golden" / "0.1.0" / "a_job_finishes.avro"


def open_source() -> LogSource:
    return LogSource(FileLog.open(LOG), "golden", file=LOG)


@functools.cache
def records() -> tuple[Record, ...]:
    with closing(FileLog.open(LOG)) as log:
        return tuple(record for batch in read_to_end(log) for record in batch)


@functools.cache
def now() -> Moment:
    fold = HistoryProjection()
    for record in records():
        fold.apply(record)
    return Moment(fold, records()[-1].header.time // 1000)


class AcceptingCommands:
    """A cluster that accepts everything."""

    def __init__(self) -> None:
        self.traceparents: list[str | None] = []

    def cancel(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        self.traceparents.append(current_traceparent())
        return Answer(operations.Empty(), 202, 1)

    def _trigger(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        return Answer(operations.TriggerResponse("0" * 32), 202, 1)

    stop = savepoint = checkpoint = _trigger

    def dispose(self, _parameters: object, _body: operations.DisposalBody, _key: str | None) -> Answer:
        return Answer(operations.TriggerResponse("0" * 32), 200, 1)

    def shut_down(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        return Answer(operations.Empty(), 200, 1)

    def submit(self, _parameters: object, body: operations.SubmissionBody, _key: str | None) -> Answer:
        return Answer(operations.Submission(body.target, "0" * 32), 201, 1)

    def rescale(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        return Answer(operations.Empty(), 200, 1)

    require_resources = rescale

    def send(self, _requester: str, _send: object, _find_outcome: object) -> tuple[str, int]:
        return "", 1

    def find_controlled_job_id(self, parameters: Mapping[str, str]) -> str:
        return parameters["jobid"]

    def find_subtasks_of(self, _job_id: str, vertex_id: str) -> tuple[str, int]:
        return vertex_id, 1


class AcceptingPrograms:
    """Programs that are never stored or run."""

    def upload(self, _parameters: object, file: UploadedFile, _key: str | None) -> Answer:
        return Answer(UploadResult(f"/{file.name}", "success"), 200)

    def programs(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        return Answer(ProgramFiles("http://localhost", ()), 200)

    def delete(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        return Answer(operations.Empty(), 200)

    def plan(self, parameters: Mapping[str, Any], body: PlanBody | None, _key: str | None) -> Answer:
        read_request(parameters, body or PlanBody())
        return Answer(JobPlan(Plan("0" * 32, "", "STREAMING", ())), 200)

    def run(self, parameters: Mapping[str, Any], body: RunBody, _key: str | None) -> Answer:
        read_request(parameters, body)
        return Answer(RunResult("0" * 32, "0" * 32), 200, 1)


COMMANDS = AcceptingCommands()
LOGS = LogFiles(LOG.parents[3] / "services", {})
STACKS_OF_TASKS = [
    Stack(0, ("a", "b"), True, 3),
    Stack(0, ("a", "c"), False, 1),
    Stack(1, ("a", "b"), False, 2),
]
SERVER = DiagnosticsServer(
    {THREADS: serve_threads(), STACKS: serve_stacks(lambda *_: STACKS_OF_TASKS), **LOGS.paths()},
    host="127.0.0.1",
)
ADDRESS = ServerAddress(SERVER.address, "")
DIAGNOSTICS = Diagnostics(
    DiagnosticsClient(),
    lambda _: ADDRESS,
    lambda *_: ("job", "vertex", [ADDRESS, ADDRESS]),
)
FLINK = [
    *READS,
    log_url_endpoint("http://localhost:8081"),
    *program_commands(AcceptingPrograms()),
    *flink_commands(COMMANDS),
    *diagnostics_endpoints(DIAGNOSTICS),
    *UNSUPPORTED,
]
FEED = EventFeed(open_source, LiveReplica(open_source))


@contextmanager
def read_now() -> Iterator[Moment]:
    yield now()


def read_output(job_id: str, start: int | None, limit: int) -> OutputPage:
    """Returns what the job printed, for a job of the log: a thousand lines, the last one with a secret."""
    assert job_id == jobs_of_log()[0]
    texts = [*map(str, range(999)), "password=hunter2"]
    first = len(texts) - limit if start is None else start
    records = [
        OutputRecord(offset, 0, 1, None, text, {"text": text})
        for offset, text in list(enumerate(texts))[max(first, 0) :][:limit]
    ]
    return OutputPage(records, records[-1].offset + 1 if records else len(texts))


def jobs_of_log() -> list[str]:
    return [each.job_id for each in cluster_view.jobs(now().fold)]


def read_topics() -> tuple[list[TopicExtent], list[ConsumedTopic]]:
    topics = [TopicExtent("c.log", None, [PartitionExtent(0, 3)], 99), TopicExtent("c.job.a.b", "a", [None])]
    return topics, [
        ConsumedTopic("orders", jobs_of_log()[0], "v", 2, 7),
        ConsumedTopic("orders", "a", "w", 1, 0),
    ]


def read_blob(*_: object) -> Path:
    raise AssertionError("no job of the log names a blob")


TOPICS = ClusterTopics(read_now, read_output, read_topics)
OWN = [
    *state.READS,
    *log_endpoints(open_source, FEED),
    *own_commands(COMMANDS),
    *topic_endpoints(TOPICS),
    *job_offset_endpoints(JobOffsets(read_now, COMMANDS, lambda _: [], lambda *_: [])),
    *blobs.READS,
    blobs.create_endpoint(BlobContents(read_now, read_blob)),
    masters.create_endpoint(lambda: [Candidate("host:1", 2)]),
]


def client(settings: Settings | None = None) -> TestClient:
    past = PastMoments(open_source)

    @contextmanager
    def read(at: str | None, _: object) -> Iterator[Moment]:
        if at is None:
            yield now()
        else:
            with past.read(at) as moment:
                yield moment

    application = create_application(read, FLINK, OWN, settings)
    return TestClient(application, raise_server_exceptions=False)


def test_address_of_process_is_that_in_the_log() -> None:
    with pytest.raises(NotFound, match="nobody"):
        find_address(read_now, "nobody")
    (worker, *_) = diagnostics_addresses(now()) or [None]
    for known in (None, worker):
        with pytest.raises(Unavailable, match="secret-file"):
            find_address(read_now, known)


def test_flame_graph_is_sum_of_samples_of_all_processes() -> None:
    def node(name: str, value: int, *children: object) -> dict[str, object]:
        return {"name": name, "value": value, "children": list(children)}

    path = f"/jobs/{'0' * 32}/vertices/{'0' * 32}/flamegraph"
    expected = {
        "full": node("root", 12, node("a", 12, node("b", 10), node("c", 2))),
        "on_cpu": node("root", 6, node("a", 6, node("b", 6))),
        "off_cpu": node("root", 6, node("a", 6, node("b", 4), node("c", 2))),
    }
    with client() as rest:
        for kind, data in expected.items():
            answer = rest.get(f"{path}?type={kind}").json()
            assert answer["data"] == data
            assert answer["endTimestamp"] > 0
        assert rest.get(path).json()["data"] == expected["full"]
        assert rest.get(f"{path}?type=half").status_code == 400


def test_flame_graph_of_job_that_has_ended_has_no_data() -> None:
    job = job_list.jobs(now(), {}).jobs[0]
    vertices = jobs.job(now(), {"jobid": job.id}).vertices
    ended = Diagnostics.from_moments(DiagnosticsClient(), read_now)
    answer = ended.flame_graph({"jobid": job.id, "vertexid": vertices[0].id}, None, None)
    assert msgspec.json.encode(answer.body) == b'{"endTimestamp":-1}'
    with pytest.raises(NotFound):
        ended.flame_graph({"jobid": job.id, "vertexid": "0" * 32}, None, None)


def test_log_and_threads_of_process_are_passed_on() -> None:
    with client() as rest:
        names = [each["name"] for each in rest.get("/jobmanager/logs").json()["logs"]]
        assert names == []
        dump = rest.get("/v1/taskmanagers/any/thread-dump").json()["threadInfos"]
        assert any("test_log_and_threads" in each["stringifiedThreadInfo"] for each in dump)
        assert {"MainThread", "diagnostics server"} <= {each["threadName"] for each in dump}


def test_output_is_followed_by_its_pages() -> None:
    (job_id,) = jobs_of_log()
    path = f"/api/v1/jobs/{job_id}/output"
    with client() as rest:
        followed, start = [], 0
        while lines := (page := rest.get(f"{path}?from={start}&limit=150").json())["lines"]:
            followed += lines
            start = page["next"]
        assert [each["offset"] for each in followed] == list(range(1_000))
        assert [each["text"] for each in followed[-2:]] == ["998", "password=***"]
        last = rest.get(f"{path}?limit=10").json()
        assert last == {"lines": followed[-10:], "next": 1_000}
        assert rest.get(f"/api/v1/jobs/{'0' * 32}/output").status_code == 404


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (None, 404, "ended longer ago than job.output.retention"),
        (LogUnavailable("no broker"), 503, "no broker."),
    ],
)
def test_output_that_can_not_be_read_has_reason(
    failure: LogUnavailable | None, status: int, message: str
) -> None:
    def fail(*_: object) -> None:
        if failure is not None:
            raise failure

    topics = ClusterTopics(read_now, fail, fail)
    for _ in range(10):
        with pytest.raises((NotFound, Unavailable), match=message) as error:
            topics.output({"jobid": jobs_of_log()[0]}, None, None)
        assert error.value.status == status


def test_answer_names_its_offset() -> None:
    with client() as rest:
        for path in ("/overview", "/v1/overview"):
            answer = rest.get(path)
            assert answer.status_code == 200
            assert answer.headers["Tailrace-Offset"] == str(now().offset)
            assert answer.headers["Content-Type"] == "application/json; charset=UTF-8"


def test_past_moment_is_what_the_prefix_of_the_log_gives() -> None:
    """Also in any order, so with every kept moment as the start of the fold."""
    states, fold = {}, HistoryProjection()
    for record in records():
        fold.apply(record)
        states[record.offset] = msgspec.json.decode(
            msgspec.json.encode(job_list.overview(Moment(fold, record.header.time // 1000), {}))
        )
    with client() as rest:
        for offset in [*list(states)[::5], *list(states)[::-7]]:
            answer = rest.get("/jobs/overview", params={"at": str(offset)})
            assert (answer.json(), answer.headers["Tailrace-Offset"]) == (states[offset], str(offset))


def test_cached_moment_is_never_that_of_a_later_log() -> None:
    """Also if the earlier log is gone, and the later one has its place in memory."""
    cache = MomentCache()
    for _ in range(8):
        cache.put(object(), 0, now())
        assert cache.get(object(), 0) is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("DELETE", "/overview", 404),
        ("GET", "/jobs/00000000000000000000000000000000", 404),
        ("GET", "/jobs/..%2F..%2Fetc", 404),
        ("GET", "/jobs/a b", 400),
        ("GET", "/jobs/%00", 400),
        ("GET", "/overview?at=yesterday", 400),
        ("GET", "/overview?at=999999", 404),
        ("GET", "/overview?at=-1", 200),
        ("GET", "/taskmanagers/nobody", 404),
        ("GET", "/taskmanagers/nobody/logs/..%2Fetc", 404),
        ("GET", "/taskmanagers/nobody/log?offset=x", 400),
        ("GET", "/jobmanager/log", 404),
        ("POST", "/jobs", 501),
        ("GET", "/jars/nope", 404),
    ],
)
def test_bad_request_gets_status_and_one_sentence(method: str, path: str, status: int) -> None:
    with client() as rest:
        answer = rest.request(method, path)
        assert answer.status_code == status
        if status != 200:
            (message,) = answer.json()["errors"]
            assert message
            assert "\n" not in message


@pytest.mark.parametrize(
    "path", ["/nope/password=hunter2", "/overview?at=s3://me:hunter2@host", "/jobs/token=hunter2"]
)
def test_secrets_in_errors_are_redacted(path: str) -> None:
    with client() as rest:
        answer = rest.get(path)
    (message,) = answer.json()["errors"]
    assert "***" in message
    assert "hunter2" not in answer.text


def test_malformed_numbers_are_refused() -> None:
    with client() as rest:
        (job,) = rest.get("/jobs").json()["jobs"]
        for number in ("x", "-1", "1e3", "99999999999999999999", "٣"):
            answer = rest.get(f"/jobs/{job['id']}/checkpoints/details/{number}")
            assert answer.status_code == 400, number


def test_log_url_is_page_of_the_server_with_the_logs_of_the_leader() -> None:
    with client() as rest:
        (job,) = rest.get("/jobs").json()["jobs"]
        answer = rest.get(f"/v1/jobs/{job['id']}/jobmanager/log-url")
        assert answer.json() == {"url": "http://localhost:8081/#/logs/jobmanager"}
        assert rest.get(f"/jobs/{'0' * 32}/jobmanager/log-url").status_code == 404


def test_unsupported_request_is_told_which_others_there_are() -> None:
    known = {f"{each.method} {each.path}" for each in FLINK}
    known |= {f"{each.method} /api/v1{each.path}" for each in OWN}
    known = {text.replace("{", ":").replace("}", "") for text in known}
    with client() as rest:
        for endpoint in UNSUPPORTED:
            answer = rest.request(endpoint.method, endpoint.path.replace("{jobid}", "0" * 32))
            (message,) = answer.json()["errors"]
            assert answer.status_code == 501
            named = re.findall(r"(?:GET|POST|PUT|PATCH|DELETE) /[\w/:-]+", message.partition(": ")[2])
            assert named
            assert set(named) <= known


def test_openapi_document_is_valid() -> None:
    with client() as rest:
        document = rest.get("/api/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    identifiers = [
        operation["operationId"] for path in document["paths"].values() for operation in path.values()
    ]
    assert len(identifiers) == len(set(identifiers)) > len(READS) + len(UNSUPPORTED)


STOP = f"/jobs/{'0' * 32}/stop"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 202),
        (b"{}", 202),
        (b'{"drain": true, "targetDirectory": "/sp", "formatType": "CANONICAL"}', 202),
        (b'{"drain": 1}', 400),
        (b'{"drane": true}', 400),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (b" " * (1 << 20) + b"{}", 413),
    ],
)
def test_body_is_checked(content: bytes, status: int) -> None:
    with client() as rest:
        answer = rest.post(STOP, content=content)
        assert answer.status_code == status
        if status != 202:
            (message,) = answer.json()["errors"]
            assert "\n" not in message


def test_body_without_length_is_read_up_to_its_limit() -> None:

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * (1 << 20)

    with client() as rest:
        assert rest.post(STOP, content=endless()).status_code == 413
        declared = rest.post(STOP, content=b"{}", headers={"Content-Length": str(100 << 20)})
        assert declared.status_code == 413


def test_write_from_page_of_another_site_is_refused() -> None:
    with client() as rest:
        assert rest.post(STOP, headers={"Origin": "http://evil.example"}).status_code == 403
        assert rest.post(STOP, headers={"Origin": "http://testserver"}).status_code == 202


def test_trace_context_of_a_write_is_that_of_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", f"00-{'1' * 32}-{'1' * 16}-01")
    sent = f"00-{'a' * 32}-{'b' * 16}-01"
    COMMANDS.traceparents.clear()
    with client() as rest:
        for headers in ({"traceparent": sent}, {}, {"traceparent": "garbage"}):
            assert rest.patch(STOP.removesuffix("/stop"), headers=headers).status_code == 202
    assert COMMANDS.traceparents == [sent, None, None]


def test_cancellation_by_get_of_another_site_is_refused() -> None:
    path = f"/jobs/{'0' * 32}/yarn-cancel"
    with client() as rest:
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 202), ("none", 202)):
            assert rest.get(path, headers={"Sec-Fetch-Site": site}).status_code == status
        assert rest.get(path).status_code == 202


def test_malformed_idempotency_key_is_refused() -> None:
    with client() as rest:
        for key in ("", "two words", "x" * 129):
            assert rest.post(STOP, headers={"Idempotency-Key": key}).status_code == 400
        assert rest.post(STOP, headers={"Idempotency-Key": "abc"}).status_code == 202


def test_state_is_that_of_time_travel() -> None:
    with client() as rest:
        found = rest.get("/api/v1/state", params={"at": "7"}).json()
        with LogSource(FileLog.open(LOG), "golden", file=LOG) as source:
            expected = cluster_moment(replica_at(source, 7))
        assert (found["offset"], found["state_hash"]) == (7, expected.state_hash)
        only = rest.get("/api/v1/state", params={"at": "7", "address": "dispatch*"}).json()
        assert list(only["roles"]) == ["dispatcher"]
        assert only["state_hash"] == expected.state_hash


def test_pages_of_events_are_the_log() -> None:
    with client() as rest:
        found, start = [], 0
        while start < len(records()):
            page = rest.get("/api/v1/events", params={"from": str(start), "limit": "7"}).json()
            assert len(page["events"]) <= 7
            found += page["events"]
            start = page["next"]
        assert [(each["offset"], each["header"]["event_id"]) for each in found] == [
            (record.offset, record.header.event_id) for record in records()
        ]
        offsets = [record.offset for record in records()]
        for part, chosen in (("first", offsets[3:9][:4]), ("last", offsets[3:9][-4:])):
            page = rest.get(f"/api/v1/events?from=3&to=8&limit=4&part={part}").json()
            assert [each["offset"] for each in page["events"]] == chosen
            assert page["next"] == chosen[-1] + 1
        assert rest.get("/api/v1/events?from=9&to=8").json() == {"events": [], "next": 9}
        assert rest.get("/api/v1/events?from=10&to=8").status_code == 404
        (accepted,) = rest.get("/api/v1/events?type=JobAccepted").json()["events"]
        assert rest.get("/api/v1/events?type=JobAccepted&part=last").json()["events"] == [accepted]
        assert accepted["type"] == "client.JobAccepted"
        assert rest.get("/api/v1/events?from=99999").status_code == 404
        assert rest.get("/api/v1/events?limit=0").status_code == 400
