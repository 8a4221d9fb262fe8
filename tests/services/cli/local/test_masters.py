"""The number and names of jobmanagers of a local cluster, and how they find ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services import client
from tailrace.services.cli import main
from tailrace.services.cli.args.common_options import resolve_location
from tailrace.services.cli.commands.cluster_status import format_roles
from tailrace.services.cli.exit_codes import CommandFailure, ExitCode
from tailrace.services.cli.local.cluster import LocalCluster, LocalClusterOptions
from tailrace.services.cli.local.cluster_record import ClusterRecord, ProcessRecord, write_record
from tailrace.services.cli.local.process_names import (
    LEAST_SLOTS,
    is_master,
    masters,
    slots_per_taskexecutor,
    taskexecutors,
)
from tailrace.services.cli.local.shutdown import end_in_order
from tailrace.services.configuration import Configuration
from tailrace.services.configuration.options.blob import BLOB_SECRET_FILE
from tailrace.services.configuration.options.cluster import SKIPPED_OFFSETS
from tailrace.services.configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
from tailrace.services.configuration.options.zookeeper import ZOOKEEPER_QUORUM
from tailrace.services.core.feature_level import UnknownFeatureLevel
from tailrace.services.log import LogTruncated, LogUnavailable

ZOOKEEPER = {"high-availability.type": "zookeeper"}


@given(st.lists(st.integers(1, 8) | st.none(), min_size=1, max_size=6))
def test_repeated_start_keeps_names_and_adds_missing_masters(counts: list[int | None]) -> None:
    known: list[str] = []
    for count in counts:
        names = masters(count, [*known, "taskexecutor-1"])
        assert len(names) == max(count or 1, len(known))
        assert len(set(names)) == len(names)
        assert set(known) <= set(names)
        assert all(map(is_master, names))
        known = names
    assert taskexecutors(1, known) == ["taskexecutor-1"]


@given(st.integers(1, 64), st.integers(1, 128))
def test_taskexecutors_of_machine_share_slot_for_each_core(count: int, cores: int) -> None:
    slots = slots_per_taskexecutor(count, cores)
    assert slots >= 1
    assert slots == 1 or 0 <= max(LEAST_SLOTS, cores) - slots * count < count


def test_single_jobmanager_has_no_number() -> None:
    assert masters(None, []) == masters(1, []) == ["jobmanager"]
    assert masters(3, []) == ["jobmanager-1", "jobmanager-2", "jobmanager-3"]
    assert masters(3, ["jobmanager"]) == ["jobmanager", "jobmanager-2", "jobmanager-3"]
    assert masters(None, ["jobmanager-1", "jobmanager-2"]) == ["jobmanager-1", "jobmanager-2"]


def test_several_jobmanagers_without_election_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["cluster", "start", "--home", str(tmp_path / "home"), "--masters", "2"]
    assert main(arguments) == ExitCode.USAGE
    assert "2 jobmanagers need an election" in (err := capsys.readouterr().err)
    assert "-D high-availability.type=zookeeper" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("ports", "hint"),
    [("50100", "50100-50102"), ("50100,50200", "50100-50102"), ("50100-50101", "50100-50102")],
)
def test_more_jobmanagers_than_blob_server_ports_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ports: str, hint: str
) -> None:
    definitions = ["-D", "high-availability.type=zookeeper", "-D", f"blob.server.port={ports}"]
    arguments = ["cluster", "start", "--home", str(tmp_path / "home"), "--masters", "3", *definitions]
    assert main(arguments) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert f"blob.server.port is {ports}: give a range such as {hint}, or 0 for free ones" in err
    assert err.count("\n") == 1


def record(tmp_path: Path, **more: object) -> ClusterRecord:
    made = ClusterRecord("c", "k:1", False, **more)  # type: ignore[arg-type]
    write_record(tmp_path, made)
    return made


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ({}, ZOOKEEPER, "high-availability.type none"),
        (
            {**ZOOKEEPER, "high-availability.zookeeper.quorum": "z:1"},
            {**ZOOKEEPER, "high-availability.zookeeper.quorum": "z:2"},
            "ZooKeeper at z:1",
        ),
    ],
)
def test_election_option_cannot_change_while_cluster_runs(
    tmp_path: Path, was: dict[str, str], now: dict[str, str], message: str
) -> None:
    record(tmp_path, high_availability=was)
    values = {"home": str(tmp_path), "cluster.id": "c", "bootstrap.servers": "k:1", **now}
    with pytest.raises(CommandFailure, match=f"{message}: stop it first"):
        LocalCluster(Configuration(values)).start(LocalClusterOptions())


def test_unsupported_option_of_embedded_zookeeper_is_rejected(tmp_path: Path) -> None:
    values = {"home": str(tmp_path), **ZOOKEEPER, "high-availability.zookeeper.ssl.enabled": "true"}
    with pytest.raises(CommandFailure, match=r"ssl\.enabled is set"):
        LocalCluster(Configuration(values)).start(LocalClusterOptions())


def test_joining_jobmanager_gets_election_options(tmp_path: Path) -> None:
    elections = {**ZOOKEEPER, "high-availability.zookeeper.quorum": "z:1"}
    record(tmp_path, high_availability=elections, embedded_zookeeper=True)
    configuration = resolve_location(Configuration({"home": str(tmp_path)}))
    assert configuration.get(HIGH_AVAILABILITY) is HighAvailability.ZOOKEEPER
    assert configuration.get(ZOOKEEPER_QUORUM) == "z:1"
    own = resolve_location(
        Configuration({"home": str(tmp_path), "high-availability.zookeeper.quorum": "z:2"})
    )
    assert own.get(ZOOKEEPER_QUORUM) == "z:2"


@pytest.mark.parametrize(
    ("named", "quorum"),
    [
        ({"bootstrap.servers": "k:1"}, "z:1"),
        ({"bootstrap.servers": "j:1,k:1"}, "z:1"),
        ({"bootstrap.servers": "k:1", "high-availability.zookeeper.quorum": "z:2"}, "z:2"),
        ({"bootstrap.servers": "k:2"}, None),
        ({"bootstrap.servers": "k:1", "cluster.id": "other"}, None),
    ],
)
def test_election_options_are_those_of_record_if_named_kafka_and_cluster_are(
    tmp_path: Path, named: dict[str, str], quorum: str | None
) -> None:
    elections = {**ZOOKEEPER, "high-availability.zookeeper.quorum": "z:1"}
    record(tmp_path, high_availability=elections, embedded_zookeeper=True)
    configuration = resolve_location(Configuration({"home": str(tmp_path), "cluster.id": "c", **named}))
    assert configuration.bootstrap_servers == named["bootstrap.servers"]
    assert (configuration.get(HIGH_AVAILABILITY) is HighAvailability.ZOOKEEPER) is (quorum is not None)
    if quorum is not None:
        assert configuration.get(ZOOKEEPER_QUORUM) == quorum


def test_client_gets_location_of_secret_and_skipped_records(tmp_path: Path) -> None:
    started = {"blob.secret-file": "/run/secret", "heartbeat.interval": "1 s", "log.skipped-offsets": "17"}
    record(tmp_path, configuration=started)
    configuration = resolve_location(Configuration({"home": str(tmp_path)}))
    assert configuration.get(BLOB_SECRET_FILE) == "/run/secret"
    assert configuration.get(SKIPPED_OFFSETS) == "17"
    assert not configuration.has("heartbeat.interval")
    own = resolve_location(Configuration({"home": str(tmp_path), "blob.secret-file": "/run/mine"}))
    assert own.get(BLOB_SECRET_FILE) == "/run/mine"


def test_stop_uses_options_of_start(tmp_path: Path) -> None:
    started = {"schema.registry.url": "http://r:1", "log.skipped-offsets": "17"}
    record(tmp_path, configuration=started)
    cluster = LocalCluster.from_configuration(
        Configuration({"home": str(tmp_path), "log.skipped-offsets": "17,18"})
    )
    assert cluster is not None
    assert cluster.configuration.schema_registry_url == "http://r:1"
    assert cluster.configuration.get(SKIPPED_OFFSETS) == "17,18"


@pytest.mark.parametrize(
    "error",
    [LogUnavailable("away"), LogTruncated("c.log", 0, 7), UnknownFeatureLevel(3, 9)],
    ids=["not there", "without its head", "of a later release"],
)
def test_cluster_with_unreadable_log_is_killed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(client.Client, "subscribe", refuse)
    reports: list[str] = []
    reached = Configuration({"bootstrap.servers": "127.0.0.1:1", "cluster.id": "c"})
    end_in_order(reached, [], "because", reports.append, suspend=False)
    assert reports == [f"the cluster can't be asked to end: {error}"]


@pytest.mark.parametrize(
    ("roles", "running", "stands", "message"),
    [
        (["dispatcher", "job_master/a", "job_master/b"], True, True, "dispatcher, 2 jobs"),
        (["job_master/a"], True, None, "1 job"),
        ([], True, True, "nothing: stands by"),
        ([], True, False, "nothing"),
        ([], None, None, "nothing"),
        (["dispatcher"], False, None, "dispatcher (is gone)"),
        (["dispatcher"], None, False, "dispatcher (is gone)"),
    ],
)
def test_roles_of_master_are_described_in_few_words(
    roles: list[str], running: bool | None, stands: bool | None, message: str
) -> None:
    assert format_roles({"leads": roles, "running": running, "stands_for_election": stands}) == message


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("127.0.0.1:1", "nobody answers at 127.0.0.1:1 (Connection refused): is it up, is the port right?"),
        ("no-such-host.invalid:9092", "the host no-such-host.invalid is not known"),
        ("127.0.0.1:99999", "nobody answers at 127.0.0.1:99999"),
    ],
)
def test_missing_kafka_is_reported_before_anything_starts(
    server: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert (
        main(["cluster", "start", "--home", str(home), "--bootstrap-servers", server]) == ExitCode.UNREACHABLE
    )
    assert says in capsys.readouterr().err
    assert not home.exists()


def test_unwritable_home_is_one_error_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "start", "--home", "/proc/nowhere"]) == ExitCode.PROCESS_FAILED
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert "the cluster can't start in /proc/nowhere" in err.splitlines()[-1]


def test_missing_processes_start_with_id_and_number_of_cluster(
    tmp_path: Path,
) -> None:
    names = ("jobmanager", "taskexecutor-1")
    processes = tuple(ProcessRecord(pid=1 << 30, created=0.0, name=name, log="") for name in names)
    made = record(tmp_path, processes=processes)
    local = LocalCluster(Configuration({"home": str(tmp_path)}))
    with pytest.raises(CommandFailure, match="is called c, not other: leave its id out"):
        LocalCluster(Configuration({"home": str(tmp_path), "cluster.id": "other"})).start(
            LocalClusterOptions()
        )
    local.adopt(made)
    assert local.configuration.cluster_id == "c"
    assert local.task_executors(LocalClusterOptions()) == ["taskexecutor-1"]
    assert local.task_executors(LocalClusterOptions(taskexecutors=2)) == ["taskexecutor-1", "taskexecutor-2"]
