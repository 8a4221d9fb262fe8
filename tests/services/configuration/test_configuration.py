"""The table of options and the sources of values: the last source wins, and a wrong value is rejected at start-up."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.infra.config.options import ConfigOption, Scope
from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.configuration import (
    Configuration,
    ConfigurationError,
    Setting,
    load_configuration,
    options,
)
from tailrace.services.configuration.configuration import DEFAULT
from tailrace.services.configuration.options.cluster import HOME
from tailrace.services.configuration.role_options import DispatcherOptions, TenantOptions
from tailrace.services.reference import configuration_page

Values = dict[str, str]
_CANDIDATES = (
    *(
        "0",
        "1",
        "3",
        "7 s",
        "70 s",
        "2 min",
        "512 kb",
        "1 gb",
        "0.5",
        "2.5",
        "true",
        "false",
        "none",
        "auto",
        "active",
    ),
    *(
        "standalone",
        "spark://host:7077",
        "spark.yarn.queue=streams",
        "Always",
        "EAGER",
        "LAZY_FROM_SOURCES",
        "BATCH",
        "ALL_EXCHANGES_PIPELINED",
        "single",
        "rocksdb",
        "slot",
        "grpc",
        "micro-batch",
        "failure-rate",
        "local-process",
        "gpu;fpga",
    ),
    *(
        "kafka:1",
        "http://registry:1",
        "retention.ms,partitions",
        "segment.ms=5;compression.type=zstd",
        "RETAIN_ON_CANCELLATION",
        "s3://bucket/dir",
        "off",
        "/root",
        "open",
        "DEBUG",
    ),
    *("json", "ES256;RS256", "adaptive", "reactive"),
)


def possible(option: ConfigOption[Any]) -> list[str]:
    """Returns some valid values of an option besides its default."""
    results = []
    for text in _CANDIDATES:
        try:
            results.append(option.write(option.read(text)))
        except ValueError:
            continue
    return results


def consistent(values: Values) -> bool:
    return not list(options.find_contradictions(values))


@st.composite
def configurations(draw: st.DrawFn) -> Values:
    keys = draw(st.sets(st.sampled_from([option.key for option in options.OPTIONS if option is not HOME])))
    return {key: draw(st.sampled_from(possible(options.BY_KEY[key]))) for key in sorted(keys)}


consistent_configurations = configurations().filter(consistent)


def loaded(
    home: Path,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    *definitions: str,
) -> Configuration:
    home.mkdir(exist_ok=True)
    (home / "tailrace.yaml").write_text(file or "")
    return load_configuration([Setting("home", str(home), "--home")], definitions, environment or {})


def refused(home: Path, *arguments: Any) -> str:
    with pytest.raises(ConfigurationError) as raised:
        loaded(home, *arguments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: str(option.key))
def test_every_option_has_valid_default_and_description(option: ConfigOption[Any]) -> None:
    assert option.read(option.write(option.default)) == option.default
    assert option.scopes
    assert option.doc.endswith(".")
    assert f"`{option.key}`" in configuration_page.render_document()
    assert possible(option), "the tests know no value of it"


def test_defaults_are_consistent() -> None:
    assert consistent({option.key: option.write(option.default) for option in options.OPTIONS})


def test_environment_variables_of_options_are_unique() -> None:
    assert len({options.environment_variable(key) for key in options.BY_KEY}) == len(options.OPTIONS)
    assert (
        options.environment_variable("taskmanager.memory.task.off-heap.size")
        == "TAILRACE_TASKMANAGER_MEMORY_TASK_OFF_HEAP_SIZE"
    )


def test_documentation_matches_table() -> None:
    assert configuration_page.main(["--check"]) == 0, "run `make configuration`"


@given(consistent_configurations)
def test_child_process_has_configuration_of_parent(values: Values) -> None:
    configuration = Configuration(values)
    assert load_configuration(environment=configuration.environment()) == configuration


@given(consistent_configurations)
def test_configuration_in_log_equals_effective_one(values: Values) -> None:
    configuration = Configuration(values)
    output = configuration.as_map()
    again = Configuration(output)
    assert again.as_map() == output
    for option in options.OPTIONS:
        if option.key in output and configuration.get(option) is not None:
            assert again.get(option) == configuration.get(option)
    for scope in Scope:
        assert not {"bootstrap.servers", "schema.registry.url", "home"} & configuration.as_map(scope).keys()


def test_checkpoint_directory_in_log_is_absolute_for_any_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = Configuration({"home": "here"}).as_map()
    assert output["state.checkpoints.dir"] == f"file://{tmp_path}/here/checkpoints"
    assert output["state.savepoints.dir"] == f"file://{tmp_path}/here/savepoints"
    assert "state.checkpoints.dir" not in Configuration().as_map(Scope.TASKMANAGER)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/a/b/", "file:///a/b"),
        ("/a//b/../c", "file:///a/c"),
        ("file:///a/b", "file:///a/b"),
        ("file:/a/b", "file:///a/b"),
        ("s3://bucket/dir/", "s3://bucket/dir"),
        ("hdfs://name:8020/dir", "hdfs://name:8020/dir"),
    ],
)
def test_storage_directory_has_one_name(text: str, uri: str) -> None:
    option = options.BY_KEY["state.checkpoints.dir"]
    assert option.read(text) == uri
    assert option.read(uri) == uri


@pytest.mark.parametrize("text", ["relative/dir", "", "s3://", "file://relative", "S3//x", "a:b"])
def test_relative_directory_is_rejected(text: str, tmp_path: Path) -> None:
    fault = refused(tmp_path, None, None, f"state.checkpoints.dir={text}")
    assert fault.endswith("it may be a URI such as s3://bucket/directory, or an absolute path or auto")


@given(st.lists(consistent_configurations, min_size=1, max_size=4))
def test_last_source_with_value_wins(layers: list[Values]) -> None:
    merged: Values = {}
    for layer in layers:
        merged |= layer
    given = [Setting(key, text, str(i)) for i, layer in enumerate(layers) for key, text in layer.items()]
    if not consistent(merged):
        with pytest.raises(ConfigurationError):
            Configuration.from_settings(given)
        return
    configuration = Configuration.from_settings(given)
    assert configuration == Configuration(merged)
    for setting in configuration.effective():
        says = [str(i) for i, layer in enumerate(layers) if setting.key in layer]
        assert setting.origin == (says[-1] if says else DEFAULT)


def nested(values: Values) -> str:
    root: dict[str, Any] = {}
    for key, text in values.items():
        *parents, last = key.split(".")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = text
    return yaml.safe_dump(root)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(values=consistent_configurations)
def test_file_environment_and_command_line_are_equivalent(tmp_path: Path, values: Values) -> None:
    wanted = Configuration({**values, "home": str(tmp_path)})
    assert loaded(tmp_path, "\n".join(f"{key}: {text}" for key, text in values.items())) == wanted
    assert loaded(tmp_path, nested(values)) == wanted
    assert (
        loaded(tmp_path, None, {options.environment_variable(key): text for key, text in values.items()})
        == wanted
    )
    assert loaded(tmp_path, None, None, *(f"{key}={text}" for key, text in values.items())) == wanted


def test_command_line_precedes_environment_and_environment_precedes_file(tmp_path: Path) -> None:
    file = "heartbeat:\n  interval: 1 s\n  timeout: 2 s\nslot.idle.timeout: 3 s\nrestart-strategy.type: off\n"
    environment = {"TAILRACE_HEARTBEAT_TIMEOUT": "20 s", "TAILRACE_SLOT_IDLE_TIMEOUT": "30 s"}
    configuration = loaded(tmp_path, file, environment, "slot.idle.timeout=300s")
    effective = {setting.key: (setting.text, setting.origin) for setting in configuration.effective()}
    assert effective["heartbeat.interval"] == ("1 s", f"{tmp_path}/tailrace.yaml:2")
    assert effective["heartbeat.timeout"] == ("20 s", "TAILRACE_HEARTBEAT_TIMEOUT")
    assert effective["slot.idle.timeout"] == ("5 min", "-D")
    assert effective["restart-strategy.type"] == ("none", f"{tmp_path}/tailrace.yaml:5")
    assert effective["home"] == (str(tmp_path), "--home")
    assert effective["cluster.id"] == ("tailrace", DEFAULT)


def test_home_comes_from_command_line_or_environment(tmp_path: Path) -> None:
    (tmp_path / "tailrace.yaml").write_text("cluster.id: here\n")
    assert load_configuration(environment={"TAILRACE_HOME": str(tmp_path)}).cluster_id == "here"
    assert load_configuration(definitions=[f"home={tmp_path}"], environment={}).cluster_id == "here"


def test_external_resources_have_amounts(tmp_path: Path) -> None:
    file = "external-resources: [gpu, fpga]\nexternal-resource.gpu.amount: 4\n"
    configuration = loaded(tmp_path, file)
    assert configuration.external_resources() == {"gpu": 4, "fpga": 1}
    assert load_configuration(environment=configuration.environment()) == configuration
    assert configuration.as_map(Scope.TASKMANAGER)["external-resource.gpu.amount"] == "4"
    assert "external-resources does not name tpu" in refused(
        tmp_path, None, None, "external-resource.tpu.amount=1"
    )


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (
            "heartbeat:\n  intervall: 1 s",
            ":2: there is no option 'heartbeat.intervall': the nearest is heartbeat.interval",
        ),
        ("slot.request.timeout: soon", ":1: slot.request.timeout is 'soon': it may be a duration such as"),
        ("slot.request.timeout:", ":1: expected a key and a value"),
        ("- a", ":1: expected a key and a value"),
        ("text", ":1: expected a key and a value"),
        ("cluster.id: a\ncluster:\n  id: b", ":3: 'cluster.id' is already set at "),
        ("home: /x", ":1: home says where this file is"),
        ("a: [", "can't be read"),
        ("a: &b\n  c: *b", "expected a key and a value"),
        ("external-resources: GPU", "none, or names of lower case letters"),
        ("taskmanager.numberOfTaskSlots: 1025", "a whole number, at least 1, at most 1024"),
        (
            "heartbeat.timeout: 10 s",
            "heartbeat.timeout is 10 s: it must be above heartbeat.interval, which is 10 s",
        ),
        ("restart-strategy.exponential-delay.max-backoff: 1 ms", "it must be at least restart-strategy."),
    ],
)
def test_invalid_file_is_rejected_with_line_number(tmp_path: Path, file: str, says: str) -> None:
    assert says in refused(tmp_path, file)


def test_binary_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "tailrace.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigurationError, match="can't be read"):
        load_configuration([Setting("home", str(tmp_path), "--home")], (), {})


def test_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# nothing yet\n") == Configuration({"home": str(tmp_path)})


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        (
            "TAILRACE_SLOT_REQUEST_TIMEOUT_S",
            "the nearest is TAILRACE_SLOT_REQUEST_TIMEOUT (slot.request.timeout)",
        ),
        ("TAILRACE_CLUSTERID", "the nearest is TAILRACE_CLUSTER_ID (cluster.id)"),
        ("TAILRACE_CLUSTER_ID", "TAILRACE_CLUSTER_ID: cluster.id is '/': it may be 1 to 64 letters"),
    ],
)
def test_invalid_variable_is_rejected_with_its_name(tmp_path: Path, variable: str, says: str) -> None:
    assert says in refused(tmp_path, None, {variable: "/"})


def test_other_environment_variables_are_ignored(tmp_path: Path) -> None:
    others = ["TAILRACE_CACHE_DIR", "TAILRACE_IVY_SETTINGS", "PATH", "TAILRACE_SERVICE_HOST", "TAILRACE_PORT"]
    others += [
        "TAILRACE_REST_SERVICE_PORT_HTTP",
        "TAILRACE_PORT_8081_TCP_ADDR",
        "TAILRACE_REST_PORT_8081_TCP",
    ]
    assert loaded(tmp_path, None, dict.fromkeys(others, "x")) == Configuration({"home": str(tmp_path)})


def test_many_errors_are_one_line(tmp_path: Path) -> None:
    output = refused(tmp_path, "\n".join(f"unknown-{i}: 1" for i in range(9)), None, "no-equals")
    assert "write -D KEY=VALUE" in output
    assert output.endswith("and 7 more errors")


class TestTheCommandLine:
    @pytest.fixture(autouse=True)
    def _nowhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
            monkeypatch.delenv(name)

    @pytest.mark.parametrize("command", ["cluster start", "jobmanager", "taskexecutor", "run", "config"])
    def test_rejects_before_anything_starts(
        self, command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        program = ["x.py"] if command == "run" else []
        assert main([*command.split(), "-D", "heartbeat.timout=1 s", *program]) == ExitCode.USAGE
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "-D: there is no option 'heartbeat.timout': the nearest is heartbeat.timeout" in err
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("slots", ["0", "1025"])
    def test_names_option_of_command_line(self, slots: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["cluster", "start", "--slots", slots]) == ExitCode.USAGE
        assert f"--slots: taskmanager.numberOfTaskSlots is '{slots}'" in capsys.readouterr().err

    def test_distinguishes_job_options(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["run", "-D", "heartbeat.interval=1s", "x.py"]) == ExitCode.USAGE
        assert "heartbeat.interval is an option of jobmanager and taskmanager, not of a job" in (
            capsys.readouterr().err
        )
        # An option of jobs gets past that, to where the cluster is missed.
        assert main(["run", "-D", "execution.mode=micro-batch", "x.py"]) == ExitCode.UNREACHABLE

    def test_rejects_password_in_url_without_showing_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        given = "schema.registry.url=http://me:hunter2@registry"
        assert main(["config", "-D", given]) == ExitCode.USAGE
        err = capsys.readouterr().err
        assert "schema.registry.basic-auth.credentials-file is for these" in err
        assert "hunter2" not in err

    def test_lists_values_with_their_sources(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAILRACE_SCHEMA_REGISTRY_URL", "http://registry")
        assert main(["config", "--changed", "-o", "json", "-D", "slot.idle.timeout=60s"]) == ExitCode.OK
        out = capsys.readouterr().out
        assert json.loads(out) == [
            {
                "key": "schema.registry.url",
                "value": "http://registry",
                "from": "TAILRACE_SCHEMA_REGISTRY_URL",
            },
            {"key": "slot.idle.timeout", "value": "1 min", "from": "-D"},
        ]
        assert main(["config"]) == ExitCode.OK
        assert len(capsys.readouterr().out.splitlines()) == 1 + len(options.OPTIONS)


def test_tenants_have_options_from_file_and_environment_that_reach_log(tmp_path: Path) -> None:
    (tmp_path / "tailrace.yaml").write_text(
        "dispatcher:\n  tenants: [payments, fraud-detection]\n  tenant:\n    payments:\n      max-jobs: 3\n"
    )
    environment = {
        "TAILRACE_HOME": str(tmp_path),
        "TAILRACE_DISPATCHER_TENANT_FRAUD_DETECTION_MAX_REQUESTS_PER_MINUTE": "7",
    }
    configuration = load_configuration(environment=environment)
    logged = DispatcherOptions.from_configuration(configuration.as_map())
    assert logged.tenants == {
        "payments": TenantOptions(max_jobs=3),
        "fraud-detection": TenantOptions(max_requests_per_minute=7),
    }
    assert load_configuration(environment=configuration.environment()) == configuration


@pytest.mark.parametrize(
    ("definitions", "fault"),
    [
        (["dispatcher.tenants=Pay"], "1 to 24 lower case letters, digits and '-'"),
        (["dispatcher.tenants=a;a"], "1 to 24 lower case letters, digits and '-'"),
        (["dispatcher.tenant.pay.max-jobs=3"], "dispatcher.tenants does not name pay"),
        (["dispatcher.tenants=pay", "dispatcher.tenant.pay.max-job=3"], "there is no option"),
        (["dispatcher.tenants=pay", "dispatcher.tenant.pay.max-slots=0"], "at least 1"),
        (["cluster.id=c.submissions"], "none of them `job` or `submissions`"),
    ],
)
def test_impossible_option_of_tenant_is_refused(tmp_path: Path, definitions: list[str], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(fault)):
        load_configuration(definitions=definitions, environment={"TAILRACE_HOME": str(tmp_path)})
