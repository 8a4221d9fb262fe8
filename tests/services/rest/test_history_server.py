"""The history server answers from logs alone what a server of the running cluster answered at each moment."""

from __future__ import annotations

import gc
import pickle
import random
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from tailrace.schemas.event import Event, Record
from tailrace.services.history import HistoryProjection
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.past_logs import LogFinder
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog
from tailrace.services.rest.api.jobs import jobs
from tailrace.services.rest.application import Settings
from tailrace.services.rest.errors import NotFound
from tailrace.services.rest.flink.job_list import all_jobs_overview
from tailrace.services.rest.history_server import HistoryApplication
from tailrace.services.rest.moment import Moment
from tailrace.services.rest.past_clusters import PastClusters

from ..history.retention.archives import create_archive, write_segments
from ..simulated_cluster.cluster import Cluster, start_cluster
from ..snapshots.simulated_logs import LONG, history
from .views import VIEWS, parameters_of, view

HOUR = 3_600
OTHERS = {"/jobs", "/jobs/overview", "/config"}
"""The paths with another answer: forgotten jobs are listed, and nothing can be cancelled."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "cache"))


def memory_log(records: Sequence[Record]) -> MemoryEventLog:
    log = MemoryEventLog(Codec("c"), topic="c")
    log.append([Event(record.header, record.body) for record in records])
    return log


def write_file(records: Sequence[Record], path: Path, cluster: str = "c") -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    export(memory_log(records), cluster, EventSelection(start=0, end=len(records)), path, ArchiveFormat.AVRO)
    return path


@contextmanager
def serve(
    *, files: Sequence[Path] = (), archives: Sequence[Path] = ()
) -> Iterator[tuple[TestClient, PastClusters]]:
    """A server that looks for new logs only when the test says so."""
    finder = LogFinder(files, [str(each) for each in archives])
    with PastClusters(finder, 1e6) as clusters:
        refresh(clusters)
        with TestClient(HistoryApplication(clusters, Settings()), raise_server_exceptions=False) as client:
            yield client, clusters


def refresh(clusters: PastClusters) -> None:
    clusters.find()
    for cluster in clusters.all():
        cluster.refresh()


def moment_at(records: Sequence[Record], offset: int) -> Moment:
    fold = HistoryProjection()
    for record in records[: offset + 1]:
        fold.apply(record)
    return Moment(fold, records[offset].header.time // 1000)


def data(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def check_answers(client: TestClient, prefix: str, records: Sequence[Record], drawn: random.Random) -> None:
    """Compares some answers at some offsets with those of a live server at that moment."""
    for offset in drawn.sample(range(len(records)), 5):
        moment = moment_at(records, offset)
        for path in drawn.sample(sorted(VIEWS.keys() - OTHERS), 6):
            parameters = drawn.choice(list(parameters_of(moment, VIEWS[path])) or [{}])
            try:
                view = VIEWS[path].view
                assert view is not None
                expected = data(view(moment, parameters))
            except (NotFound, KeyError):
                continue
            answer = client.get(prefix + path.format(**parameters), params={"at": str(offset)})
            assert (answer.status_code, answer.json()) == (200, expected), (path, parameters, offset)
            assert answer.headers["Tailrace-Offset"] == str(offset)
        own = prefix.removesuffix("/v1") + "/api/v1/jobs"
        assert client.get(own, params={"at": str(offset)}).json() == data(jobs(moment, {}))
        overview = client.get(f"{prefix}/jobs/overview", params={"at": str(offset)}).json()
        assert overview == data(all_jobs_overview(moment, {}))


@pytest.mark.parametrize("seed", [1, 3, LONG])
def test_answer_at_offset_is_that_of_live_server_at_that_offset(seed: int, tmp_path: Path) -> None:
    records, drawn = history(seed), random.Random(seed)
    with serve(files=[write_file(records, tmp_path / "c.avro")]) as (client, _):
        for prefix in ("", "/v1", "/clusters/c", "/clusters/c/v1"):
            check_answers(client, prefix, records, drawn)
        last = moment_at(records, len(records) - 1)
        assert client.get("/overview").headers["Tailrace-Offset"] == str(last.offset)


def test_archive_and_its_new_segments_are_served(tmp_path: Path) -> None:
    records, drawn = history(LONG), random.Random(5)
    archive = create_archive(tmp_path / "storage" / "c1")
    log = memory_log(records)
    write_segments(log, archive, [50, 120])
    with serve(archives=[tmp_path / "storage"]) as (client, clusters):
        # A what-if opens the log in a process of its own.
        with pickle.loads(pickle.dumps(clusters.all()[0].log.open))() as source:
            assert source.log.end() == 120
        (cluster,) = client.get("/api/v1/clusters").json()["clusters"]
        assert (cluster["name"], cluster["last_offset"], cluster["error"]) == ("c1", 119, None)
        check_answers(client, "/clusters/c1", records[:120], drawn)
        write_segments(log, archive, [len(records)])
        refresh(clusters)
        assert client.get("/overview").headers["Tailrace-Offset"] == str(len(records) - 1)
        check_answers(client, "", records, drawn)


def test_moments_before_missing_segment_are_served(tmp_path: Path) -> None:
    records = history(LONG)
    archive = create_archive(tmp_path / "c1")
    write_segments(memory_log(records), archive, [50, 120, 200])
    for file in tmp_path.rglob("*-00000000000000000119*"):
        file.unlink()
    with serve(archives=[tmp_path]) as (client, _):
        assert client.get("/overview").headers["Tailrace-Offset"] == "49"
        assert client.get("/overview?at=60").status_code == 404


def test_archive_without_its_head_says_so(tmp_path: Path) -> None:
    records = history(LONG)
    archive = create_archive(tmp_path / "c1")
    write_segments(memory_log(records), archive, [50, 120, 200])
    for file in tmp_path.rglob("*-00000000000000000049*"):
        file.unlink()
    with serve(archives=[tmp_path]) as (client, _):
        answer = client.get("/overview")
        assert answer.status_code == 503
        (message,) = answer.json()["errors"]
        assert "begins at offset 50" in message
        (cluster,) = client.get("/api/v1/clusters").json()["clusters"]
        assert cluster["error"] == message
        assert client.get("/clusters/c1/api/v1/events?from=60&limit=1").json()["events"][0]["offset"] == 60


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def replace_by_text(path: Path) -> None:
    path.write_text("no log")


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("harm", [truncate, replace_by_text, remove])
def test_broken_file_is_named_and_others_are_served(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    good = write_file(history(1), tmp_path / "good.avro", "good")
    bad = write_file(history(3), tmp_path / "bad.avro", "bad")
    harm(bad)
    with serve(files=[bad, good]) as (client, _):
        found = client.get("/api/v1/clusters").json()
        errors = [*found["unreadable"], *(each for each in found["clusters"] if each["error"])]
        assert [each["place"] for each in errors] == [str(bad)]
        assert str(bad) in errors[0]["error"]
        assert "\n" not in errors[0]["error"]
        assert client.get("/clusters/good/v1/overview").status_code == 200


def test_new_and_replaced_files_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write_file(history(1), folder / "a.avro", "a")
    with serve(archives=[folder]) as (client, clusters):
        assert [each["name"] for each in client.get("/api/v1/clusters").json()["clusters"]] == ["a"]
        write_file(history(3), folder / "b.avro", "b")
        write_file(history(LONG), tmp_path / "other.avro", "a")
        (tmp_path / "other.avro").replace(folder / "a.avro")
        refresh(clusters)
        assert [each["name"] for each in client.get("/api/v1/clusters").json()["clusters"]] == ["a", "b"]
        check_answers(client, "/clusters/a", history(LONG), random.Random(2))
        check_answers(client, "/clusters/b", history(3), random.Random(2))
        (folder / "b.avro").unlink()
        refresh(clusters)
        assert client.get("/clusters/b/v1/overview").status_code == 404


def test_jobs_of_several_clusters_are_merged(tmp_path: Path) -> None:
    files = [write_file(history(seed), tmp_path / f"{seed}.avro", f"c{seed}") for seed in (1, 3)]
    shutil.copy(files[0], tmp_path / "copy.avro")
    with serve(files=[*files, tmp_path / "copy.avro"]) as (client, _):
        names = [each["name"] for each in client.get("/api/v1/clusters").json()["clusters"]]
        assert names == ["c1", "c1-2", "c3"]
        parts = [client.get(f"/clusters/{name}/jobs/overview").json()["jobs"] for name in names]
        merged = client.get("/v1/jobs/overview").json()["jobs"]
        assert sorted(map(str, merged)) == sorted(str(job) for part in parts for job in part)
        for job in merged:
            # Jobs of simulated clusters have the same ids.
            names_of_id = {each["name"] for each in merged if each["jid"] == job["jid"]}
            assert client.get(f"/v1/jobs/{job['jid']}").json()["name"] in names_of_id
        assert client.get("/v1/overview").json()["taskmanagers"] == sum(
            client.get(f"/clusters/{name}/overview").json()["taskmanagers"] for name in names
        )
        assert client.get("/v1/taskmanagers").status_code == 404
        assert client.get("/v1/jobs/overview?at=3").status_code == 400
        assert client.get("/v1/jobs/overview?at=1969-01-01").json() == {"jobs": []}
        assert client.get("/v1/jobs/nobody").status_code == 404
        assert client.get("/v1/config").json()["features"]["web-cancel"] is False


def test_writes_are_refused(tmp_path: Path) -> None:
    with serve(files=[write_file(history(1), tmp_path / "c.avro")]) as (client, _):
        for method, path in (
            ("PATCH", f"/jobs/{'0' * 32}"),
            ("POST", f"/clusters/c/v1/jobs/{'0' * 32}/savepoints"),
            ("POST", f"/v1/jobs/{'0' * 32}/stop"),
            ("DELETE", "/cluster"),
        ):
            answer = client.request(method, path)
            assert answer.status_code == 405, path
            assert answer.headers["Allow"] == "GET"
            assert "only reads" in answer.json()["errors"][0]


def create_cluster_that_forgets() -> Cluster:
    return start_cluster("te", slots=2, configuration={"jobstore.expiration-time": "10 h"})


def test_forgotten_job_is_listed_and_its_answers_are_those_before(tmp_path: Path) -> None:
    cluster = create_cluster_that_forgets()
    cluster.submit("old")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    cluster.tick(11 * HOUR)
    cluster.submit("live")
    cluster.settle()
    records = cluster.log
    (gone,) = [record.offset for record in records if type(record.body).__name__ == "JobsForgotten"]
    before = moment_at(records, gone - 1)
    with serve(files=[write_file(records, tmp_path / "c.avro")]) as (client, _):
        states = [job["state"] for job in client.get("/jobs/overview").json()["jobs"]]
        assert states == ["FINISHED", "RUNNING"]
        for path in (
            "/jobs/{jobid}",
            "/jobs/{jobid}/exceptions",
            "/jobs/{jobid}/checkpoints",
            "/jobs/{jobid}/config",
        ):
            view = VIEWS[path].view
            assert view is not None
            answer = client.get(path.format(jobid="old"))
            assert answer.json() == data(view(before, {"jobid": "old"}))
            assert answer.headers["Tailrace-Offset"] == str(gone - 1)
        assert client.get("/jobs/old/vertices/" + "0" * 32).status_code == 404
        assert client.get(f"/jobs/old?at={gone}").headers["Tailrace-Offset"] == str(gone - 1)
        assert client.get("/jobs/old?at=0").status_code == 404


def test_dropped_moments_are_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    """Their size is that of the cluster's state; and a scan of the collector takes seconds."""
    records = history(LONG)
    with serve(files=[write_file(records, tmp_path / "c.avro")]) as (_, clusters):
        (cluster,) = clusters.all()
        gc.collect()
        gc.disable()
        try:
            kept = []
            # The second one is a copy of the first that has gone on.
            for offset in (len(records) // 2, len(records) // 2 + 3):
                with cluster.moments.read(str(offset)) as moment:
                    assert view(moment, "/overview")
                    for job in view(moment, "/jobs").jobs:
                        assert view(moment, "/jobs/{jobid}", jobid=job.id)
                    kept += [weakref.ref(moment.fold), weakref.ref(moment.fold.replica)]
            assert all(each() is not None for each in kept)
            del moment
            cluster.moments.drop()
            assert [each() for each in kept] == [None] * 4
        finally:
            gc.enable()


def test_rate_limit_is_one_for_all_clusters(tmp_path: Path) -> None:
    records = history(LONG)[:50]
    files = [write_file(records, tmp_path / name / "log.avro", name) for name in ("a", "b")]
    with PastClusters(LogFinder(files, []), 1e6) as clusters:
        refresh(clusters)
        application = HistoryApplication(clusters, Settings(max_requests_per_second=3))
        with TestClient(application, raise_server_exceptions=False) as client:
            paths = [f"/clusters/{name}/v1/config" for name in ("a", "b")] + ["/v1/jobs"]
            statuses = [client.get(path).status_code for path in paths * 3]
    assert 429 in statuses
    assert statuses.count(200) < 6
