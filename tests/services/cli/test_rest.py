"""Commands by REST print what they print for the log itself, and need no Kafka."""

from __future__ import annotations

import datetime
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from certificates import CertificateAuthority
from msgspec.structs import replace

from tailrace.infra.tls import ServerTls, TlsFiles
from tailrace.schemas import dispatcher
from tailrace.schemas.body import Body
from tailrace.schemas.event import Record
from tailrace.schemas.types import Header
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.client.rest_output import read_output_by_rest
from tailrace.services.configuration import Configuration
from tailrace.services.configuration.options.rest import REST_URL
from tailrace.services.history import HistoryProjection, cluster_view
from tailrace.services.log.event_log import LogUnavailable
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.log.rest_log import RestConnection, RestEventLog, to_record
from tailrace.services.rest.api.topics import JobOutput, OutputLine
from tailrace.services.rest.application import Settings
from tailrace.services.rest.authenticator import Authenticator
from tailrace.services.rest.commands import flink_commands, own_commands, program_commands
from tailrace.services.rest.endpoint import Answer, Endpoint, Parameter
from tailrace.services.rest.errors import BadRequest, Conflict, Forbidden, NotFound
from tailrace.services.rest.flink import ids, operations
from tailrace.services.rest.flink.endpoints import path_parameters
from tailrace.services.rest.program_requests import (
    PlanBody,
    ProgramFiles,
    ProgramRequest,
    RunBody,
    RunResult,
    UploadResult,
    read_request,
)
from tailrace.services.rest.uploads import UploadedFile

from ..rest.live_server import GOLDEN, LiveServer, append, golden_records, serve

NAME = "one_task_fails_and_is_restarted_alone"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    log = MemoryEventLog()
    append(log, golden_records(NAME))
    with serve(log) as found:
        yield found


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    # `--rest` sets both: so monkeypatch restores them.
    monkeypatch.setenv("TAILRACE_REST_URL", "")
    monkeypatch.setenv("TAILRACE_REST_TOKEN_FILE", "")
    monkeypatch.delenv("TAILRACE_REST_TOKEN_FILE")
    monkeypatch.setenv("TAILRACE_SECURITY_SSL_REST_CA", "")
    monkeypatch.delenv("TAILRACE_SECURITY_SSL_REST_CA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.avro"))[::4])
def test_event_by_rest_is_event_of_log(name: str) -> None:
    records, log = golden_records(name), MemoryEventLog()
    append(log, records)
    with serve(log) as server:
        assert [to_record(event) for event in server.pages(limit=1_000)] == records


@pytest.mark.parametrize(
    "command",
    [
        ["log"],
        ["log", "--type", "SubmitTask", "-o", "json"],
        ["state", "-o", "json"],
        ["state", "--at", "30", "-o", "json"],
        ["diff", "--from", "20", "--to", "40"],
        ["story", "job_master/WindowWordCount"],
        ["story", "--why", "40"],
        ["story", "--effects", "12"],
    ],
)
def test_history_command_prints_what_it_prints_for_file(
    server: LiveServer, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    code = main([*command, "--file", str(GOLDEN / f"{NAME}.avro")])
    expected = capsys.readouterr().out
    assert main(["--rest", f"http://127.0.0.1:{server.port}", *command]) == code
    found = capsys.readouterr().out
    # The first line may name the log. JSON sorts the keys of maps.
    assert list(map(sorted, found.splitlines()[1:])) == list(map(sorted, expected.splitlines()[1:]))


def test_commands_without_file_work_by_rest(server: LiveServer, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{server.port}"
    assert main(["--rest", url, "list", "-o", "json"]) == 0
    assert '"WindowWordCount"' in capsys.readouterr().out
    assert main(["--rest", url, "show", "WindowWordCount"]) == 0
    assert main(["--rest", url, "checkpoints", "WindowWordCount"]) == 0
    assert main(["--rest", url, "replay", "--check"]) == 0


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["offsets", "show", "x"], ExitCode.NOT_FOUND, "there is no job"),
        (["output", "x"], ExitCode.NOT_FOUND, "there is no job"),
        (["run", "--job-id", "x", "x:main"], ExitCode.USAGE, "--job-id does not work by REST"),
        (["run", "--py-file", "x.py", "x.py"], ExitCode.USAGE, "--py-file does not work by REST"),
        (["run", "--home", "x", "x.py"], ExitCode.USAGE, "exclude each other"),
        (["run", "x.py"], ExitCode.JOB, "x.py can't be read: No such file"),
        (["stop", "--force", "x"], ExitCode.USAGE, "needs Kafka"),
        (["savepoint", "dispose", "x"], ExitCode.USAGE, "needs Kafka"),
        (["offsets", "reset", "x", "--to-latest"], ExitCode.NOT_FOUND, "there is no job"),
        (["offsets", "reset", "./x", "--to-latest"], ExitCode.USAGE, "leave out --rest"),
        (["top", "--once"], ExitCode.USAGE, "needs Kafka"),
        (["log", "archive"], ExitCode.USAGE, "needs Kafka"),
        (["log", "import", "x.avro"], ExitCode.USAGE, "needs Kafka"),
        (["kafka-tools", "topics", "--list"], ExitCode.USAGE, "needs Kafka"),
        *(([name], ExitCode.USAGE, "needs Kafka") for name in ("jobmanager", "taskexecutor", "gateway")),
        *(
            (["cluster", name], ExitCode.USAGE, "needs Kafka")
            for name in ("start", "stop", "doctor", "verify", "snapshot", "clean", "recover", "upgrade")
        ),
        (["list", "--bootstrap-servers", "x:1"], ExitCode.USAGE, "exclude each other"),
        (["show", "nobody"], ExitCode.NOT_FOUND, "nobody"),
        (["state", "--at", "99999"], ExitCode.NOT_FOUND, "outside"),
    ],
)
def test_bad_command_by_rest_is_one_error_line(
    server: LiveServer, capsys: pytest.CaptureFixture[str], command: list[str], code: ExitCode, message: str
) -> None:
    assert main(["--rest", f"http://127.0.0.1:{server.port}", *command]) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert message in line


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:1/x"])
def test_missing_server_is_one_error_line(capsys: pytest.CaptureFixture[str], url: str) -> None:
    assert main(["--rest", url, "list"]) == ExitCode.UNREACHABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert "does not answer" in line
    assert main(["--rest", "http://user:secret@h:1", "list"]) == ExitCode.USAGE
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [NAME, "a_task_executor_is_quarantined_and_its_tasks_move"])
def test_cluster_status_is_that_of_log(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    fold, log = HistoryProjection(), MemoryEventLog()
    append(log, golden_records(name))
    for record in golden_records(name):
        fold.apply(record)
    with serve(log) as server:
        check_status(fold, f"http://127.0.0.1:{server.port}", capsys)


def check_status(fold: HistoryProjection, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rest", url, "cluster", "status", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    workers, leaders = cluster_view.workers(fold.replica), cluster_view.leaders(fold.replica)
    assert (found["rest_url"], found["offset"]) == (url, fold.replica.offset)
    states = [cluster_view.describe_quarantine(worker) for worker in workers]
    assert [each.pop("state") for each in found["taskexecutors"]] == states
    assert found["taskexecutors"] == json.loads(msgspec.json.encode(workers)) != []
    assert found["leaders"] == msgspec.to_builtins(leaders)
    assert {each["address"] for each in found["masters"]} == {each.address for each in leaders}
    jobs = msgspec.to_builtins(cluster_view.jobs(fold))
    for job, expected in zip(found["jobs"], jobs, strict=True):
        for name in ("submitted", "ended"):
            assert job.pop(name) == (None if expected[name] is None else expected[name] // 1000 * 1000)
        assert job == {name: expected[name] for name in job}
    assert sum(found["job_counts"].values()) == len(jobs) > 0
    assert main(["--rest", url, "cluster", "status"]) == 0
    shown = capsys.readouterr().out
    assert all(worker.resource_id in shown for worker in workers)
    assert f"the cluster of {url}: " in shown


class RecordedCluster:
    """A cluster with the log up to a request of a recorded one. When it gets that request, the rest follows."""

    def __init__(self, name: str, request: type[Body]) -> None:
        records = golden_records(name)
        place = next(index for index, each in enumerate(records) if isinstance(each.body, request))
        self.log = MemoryEventLog()
        append(self.log, records[:place])
        self._rest = records[place:]
        self.program: ProgramRequest | None = None
        self.upload_name = ""
        self.fault: Exception | None = None
        self.output_fault: Exception | None = None
        self.has_output = True

    @property
    def job_id(self) -> str:
        return str(getattr(self._rest[0].body, "job_id", None))

    def _continue(self, requester: str) -> None:
        """The answers go to the client of this test."""
        recorded = self._rest[0].header.sender
        append(
            self.log, [replace(each, header=_readdressed(each, recorded, requester)) for each in self._rest]
        )

    def cancel(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        self._continue("client/rest")
        return Answer(operations.Empty(), 202, 1)

    def stop(self, _parameters: object, body: operations.StopBody, _key: str | None) -> Answer:
        assert body.trigger_id is not None
        self._continue(operations.requester_of(body.trigger_id))
        return Answer(operations.TriggerResponse(body.trigger_id), 202, 1)

    def savepoint(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        raise AssertionError

    checkpoint = dispose = shut_down = delete = rescale = require_resources = savepoint

    def programs(self, _parameters: object, _body: object, _key: str | None) -> Answer:
        return Answer(ProgramFiles("", ()), 200)

    def plan(self, _parameters: object, _body: PlanBody | None, _key: str | None) -> Answer:
        raise AssertionError

    def submit(self, _parameters: object, body: operations.SubmissionBody, _key: str | None) -> Answer:
        self.program = ProgramRequest(
            body.target,
            tuple(body.arguments),
            body.parallelism,
            dict(body.configuration),
            None,
            body.savepoint_path,
            body.allow_non_restored_state,
        )
        self._accept()
        return Answer(operations.Submission(self.job_id, ids.to_job_id(self.job_id)), 201, 1)

    def upload(self, _parameters: object, file: UploadedFile, _key: str | None) -> Answer:
        self.upload_name, content = file.name, file.content.read()
        assert content == PROGRAM
        return Answer(UploadResult(f"/{file.name}", "success"), 200)

    def run(self, parameters: Any, body: RunBody, _key: str | None) -> Answer:
        assert parameters["jarid"] == self.upload_name
        self.program = read_request(parameters, body)
        self._accept()
        flink_id = ids.to_job_id(self.job_id)
        return Answer(RunResult(flink_id, flink_id), 200, 1)

    def output(self, parameters: Any, _body: object, _key: str | None) -> Answer:
        """Two lines a page."""
        if not self.has_output:
            raise NotFound("Job has no topic of output.")
        if self.output_fault is not None:
            raise self.output_fault
        first = parameters["from"]
        lines = [OutputLine(each, 0, 1, None, f"line {each}") for each in range(5)][first : first + 2]
        return Answer(JobOutput(lines, first + len(lines)), 200)

    def _accept(self) -> None:
        if self.fault is not None:
            raise self.fault
        self._continue(operations.requester_of(self.job_id[-32:]))


def _readdressed(record: Record, recorded: str, requester: str) -> Header:
    header = record.header
    return replace(
        header,
        sender=requester if header.sender == recorded else header.sender,
        recipient=requester if header.recipient == recorded else header.recipient,
    )


PROGRAM = b"the program\r\n--with a line like a boundary--\n\0"
TOKEN = "0123456789abcdef0123"


@contextmanager
def serving(
    cluster: RecordedCluster, settings: Settings | None = None, tls: ServerTls | None = None
) -> Iterator[str]:
    """Yields the URL."""
    flink = [*flink_commands(cluster), *program_commands(cluster)]
    path = "/jobs/{jobid}/output"
    first = Parameter("from", int, "The first offset.")
    limit = Parameter("limit", int, "The most lines.")
    output = Endpoint(
        "GET", path, path_parameters(path), (first, limit), command=cluster.output, response=JobOutput
    )
    own = [*own_commands(cluster), output]
    with serve(cluster.log, flink=flink, own=own, settings=settings, tls=tls) as server:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("recorded", "code", "ends"),
    [
        ("a_job_finishes", ExitCode.OK, "is FINISHED"),
        ("a_task_fails", ExitCode.JOB, "is FAILED"),
    ],
)
@pytest.mark.parametrize("program", ["count.py", "shop.jobs:main"])
def test_run_follows_job_to_its_end(
    recorded: str, code: ExitCode, ends: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = RecordedCluster(recorded, dispatcher.SubmitJob)
    Path("count.py").write_bytes(PROGRAM)
    options = [
        "-p",
        "3",
        "-D",
        "restart-strategy.type=none",
        "-s",
        "/savepoints/1",
        "--allow-non-restored-state",
    ]
    with serving(cluster) as url:
        assert main(["--rest", url, "run", *options, "-o", "json", program, "--port", "9999", "a b"]) == code
    captured = capsys.readouterr()
    result = json.loads(captured.out.splitlines()[-1])["job"]
    assert result["job_id"] == cluster.job_id
    assert captured.err.splitlines()[0] == f"job {cluster.job_id} ({result['name']}) is accepted"
    assert ends.removeprefix("is ") == result["status"]
    assert ends in captured.err.splitlines()[-1]
    assert cluster.program == ProgramRequest(
        program if ":" in program else None,
        ("--port", "9999", "a b"),
        3,
        {"restart-strategy.type": "none"},
        None,
        "file:///savepoints/1",
        True,
    )
    assert cluster.upload_name == ("" if ":" in program else "count.py")


def test_run_and_output_print_what_job_prints(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    Path("count.py").write_bytes(PROGRAM)
    printed = "".join(f"1> line {number}\n" for number in range(5))
    with serving(cluster) as url:
        assert main(["--rest", url, "run", "count.py"]) == 0
        assert capsys.readouterr().out == printed
        for command in (["output", cluster.job_id], ["output", "-f", cluster.job_id]):
            assert main(["--rest", url, *command]) == 0
            assert capsys.readouterr().out == printed


def test_output_of_job_without_topic_is_waited_for_until_job_is_over() -> None:
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    cluster.has_output = False
    asked: list[bool] = []

    def over() -> bool:
        # The topic exists from the third look on, which is the last one.
        asked.append(cluster.has_output)
        cluster.has_output = len(asked) > 2
        return cluster.has_output

    with serving(cluster) as url:
        configuration = Configuration({REST_URL.key: url})
        assert [line.text for line in read_output_by_rest(configuration, cluster.job_id, over=over)] == [
            f"line {number}" for number in range(5)
        ]
        cluster.has_output = False
        assert list(read_output_by_rest(configuration, cluster.job_id)) == []


def test_output_that_may_not_be_read_is_one_line_and_run_continues(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    cluster.output_fault = Forbidden("The token has no role that reads.")
    Path("count.py").write_bytes(PROGRAM)
    with serving(cluster) as url:
        assert main(["--rest", url, "run", "count.py"]) == 0
        (line,) = [each for each in capsys.readouterr().err.splitlines() if "not shown" in each]
        assert line == f"what job {cluster.job_id} prints is not shown: The token has no role that reads."
        assert main(["--rest", url, "output", cluster.job_id]) == ExitCode.UNREACHABLE
        assert "no role that reads" in capsys.readouterr().err


def test_detached_run_returns_with_id(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    Path("count.py").write_bytes(PROGRAM)
    with serving(cluster) as url:
        assert main(["--rest", url, "run", "-d", "count.py"]) == 0
    assert capsys.readouterr().out == f"{cluster.job_id}\n"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (BadRequest("count.py:3: there is no name x."), "count.py:3: there is no name x"),
        (Conflict("The job was rejected: no quota."), "rejected: no quota"),
    ],
)
def test_program_that_server_refuses_is_one_error_line(
    fault: Exception, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    cluster.fault = fault
    Path("count.py").write_bytes(PROGRAM)
    with serving(cluster) as url:
        for program in ("count.py", "shop.jobs:main"):
            assert main(["--rest", url, "run", program]) == ExitCode.JOB
            (line,) = capsys.readouterr().err.splitlines()
            assert message in line


@contextmanager
def secured(
    cluster: RecordedCluster, authority: CertificateAuthority, directory: Path, days: int = 1
) -> Iterator[str]:
    """Yields the URL of a server with TLS that wants a token; one day before it began, for negative days."""
    (directory / "server-token").write_text(TOKEN)
    settings = Settings(Authenticator(Configuration({"rest.token-file": str(directory / "server-token")})))
    certificate = authority.issue("server", valid_for=datetime.timedelta(days=days))
    with serving(cluster, settings, ServerTls(TlsFiles(certificate=str(certificate)))) as url:
        yield url


@pytest.mark.parametrize(
    ("recorded", "request_kind", "command", "message"),
    [
        ("a_job_is_cancelled_during_its_deployment", dispatcher.CancelJob, "cancel", "is CANCELED"),
        ("a_job_stops_with_a_savepoint", dispatcher.StopWithSavepoint, "stop", "is FINISHED"),
    ],
)
def test_job_is_ended_with_token_and_own_authority(
    recorded: str,
    request_kind: type[Body],
    command: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = CertificateAuthority(tmp_path)
    cluster = RecordedCluster(recorded, request_kind)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    known = ["--rest-token-file", str(tmp_path / "token"), "--rest-ca", str(authority.ca)]
    with secured(cluster, authority, tmp_path) as url:
        assert main(["--rest", url, *known, command, cluster.job_id]) == 0
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert main(["--rest", url, *known, "cluster", "status"]) == 0


COMMANDS = (["cancel", "x"], ["stop", "x"], ["run", "count.py"], ["cluster", "status"], ["list"], ["log"])


def failures(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> set[tuple[int, str]]:
    """Returns the exit codes and lines of all commands."""
    Path("count.py").write_bytes(PROGRAM)
    found = set()
    for command in COMMANDS:
        code = main([*arguments, *command])
        captured = capsys.readouterr()
        (line,) = captured.err.splitlines()
        assert captured.out == ""
        assert TOKEN not in line
        found.add((code, line))
    return found


def test_wrong_token_is_one_error_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = CertificateAuthority(tmp_path)
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    (tmp_path / "token").write_text("another token of 16 characters")
    (tmp_path / "short").write_text("short")
    with secured(cluster, authority, tmp_path) as url:
        trusting = ["--rest", url, "--rest-ca", str(authority.ca)]
        ((code, line),) = failures(trusting, capsys)
        assert code == ExitCode.USAGE
        assert "Authorization" in line
        for name, message in (
            ("token", "The token is not known."),
            ("short", "at least 16"),
            ("no", "can't be read"),
        ):
            ((code, line),) = failures([*trusting, "--rest-token-file", str(tmp_path / name)], capsys)
            assert code == ExitCode.USAGE
            assert message in line
            assert "token-file" in line


def test_certificate_that_is_not_accepted_is_one_error_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = CertificateAuthority(tmp_path)
    stranger = CertificateAuthority(tmp_path, "stranger")
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    (tmp_path / "token").write_text(TOKEN)
    known = ["--rest-token-file", str(tmp_path / "token")]
    for days, trusted, code, message in (
        (-1, authority.ca, ExitCode.UNREACHABLE, "certificate has expired"),
        (1, stranger.ca, ExitCode.UNREACHABLE, "is not accepted"),
        (1, None, ExitCode.UNREACHABLE, "is not accepted"),
        (1, tmp_path / "token", ExitCode.USAGE, "has no certificate authorities that can be read"),
        (1, tmp_path / "none", ExitCode.USAGE, "No such file"),
    ):
        with secured(cluster, authority, tmp_path, days) as url:
            option = [] if trusted is None else ["--rest-ca", str(trusted)]
            ((found, line),) = failures(["--rest", url, *known, *option], capsys)
            assert found == code
            assert message in line


def test_other_protocol_is_one_error_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TLS without https, https without TLS, and what is no HTTP at all."""
    authority = CertificateAuthority(tmp_path)
    cluster = RecordedCluster("a_job_finishes", dispatcher.SubmitJob)
    with secured(cluster, authority, tmp_path) as url:
        found = failures(["--rest", url.replace("https", "http")], capsys)
    with serving(cluster) as url:
        found |= failures(["--rest", url.replace("http", "https")], capsys)
    assert {code for code, _ in found} == {ExitCode.UNREACHABLE}
    assert all("does not answer" in line for _, line in found)


def test_garbage_for_answer_is_one_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for _ in COMMANDS:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        found = failures(["--rest", f"http://127.0.0.1:{listening.getsockname()[1]}"], capsys)
        thread.join()
    assert {code for code, _ in found} == {ExitCode.UNREACHABLE}


def test_reader_continues_after_restart_of_server() -> None:
    records, log = golden_records(NAME), MemoryEventLog()
    append(log, records[:10])
    with serve(log) as server:
        port = server.port
        connection = RestConnection(Configuration({"rest.url": f"http://127.0.0.1:{port}"}))
        tail = RestEventLog(connection).tail(0)
        found = tail.poll(10.0)
    assert tail.poll(0.1) == []
    append(log, records[10:])
    with serve(log, port=port):
        while len(found) < len(records):
            found += tail.poll(10.0)
    assert found == records
    with pytest.raises(LogUnavailable):
        RestEventLog(connection).tail(0)


def test_redirect_is_not_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """It could lead the token to another server."""
    paths: list[str] = []

    class RedirectHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

    with HTTPServer(("127.0.0.1", 0), RedirectHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert main(["--rest", f"http://127.0.0.1:{server.server_port}", "list"]) == ExitCode.UNREACHABLE
        finally:
            server.shutdown()
            thread.join()
    (line,) = capsys.readouterr().err.splitlines()
    assert "302" in line
    assert "/elsewhere" not in paths
