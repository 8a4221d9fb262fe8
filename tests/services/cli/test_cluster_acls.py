"""`cluster acls` prints commands that a shell reads as they are meant."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.cli import main
from tailrace.services.cli.exit_codes import ExitCode
from tailrace.services.cli.render.acls import KafkaTool, grant_command
from tailrace.services.reference.acls import AclScope, PatternType, PrincipalRole, acls_of

texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


@given(
    role=st.sampled_from(PrincipalRole),
    principal=texts.map(lambda name: f"User:{name}"),
    topic=texts,
    servers=texts,
    config=st.none() | texts,
)
def test_command_survives_shell(
    role: PrincipalRole, principal: str, topic: str, servers: str, config: str | None
) -> None:
    tool = KafkaTool(bootstrap_servers=servers, command_config=config)
    for acl in acls_of(role, AclScope("c", reads=(topic,))):
        words = shlex.split(grant_command(acl, principal, tool))
        assert words[0] == "kafka-acls.sh"
        given_options = dict(pairwise(words))
        assert given_options["--allow-principal"] == principal
        assert given_options["--bootstrap-server"] == servers
        assert given_options.get("--command-config") == config
        assert given_options[f"--{acl.resource_type}"] == acl.name
        is_prefix = given_options.get("--resource-pattern-type") == "prefixed"
        assert is_prefix == (acl.pattern_type is PatternType.PREFIXED)
        operations = [after for word, after in pairwise(words) if word == "--operation"]
        assert operations == list(acl.operations)


def test_acls_are_printed_for_each_principal_as_commands_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--home", str(tmp_path), "--cluster-id", "c", "--read", "orders"]
    options += ["--principal", "tasks=User:t", "--principal", "submitter=User:CN=shop, O=x"]
    assert main(["cluster", "acls", *options, "--tool", "tailrace kafka-tools kafka-acls"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "# tasks: User:t" in lines
    assert all(
        line.startswith(("# ", "tailrace kafka-tools kafka-acls --bootstrap-server ")) for line in lines
    )
    granted = [shlex.split(line, comments=True)[-7:] for line in lines[-3:]]
    principal = ("--add", "--allow-principal", "User:CN=shop, O=x")
    assert granted == [
        [*principal, "--operation", "Write", "--topic", "c.submissions"],
        [*principal, "--operation", "Read", "--topic", "c.answers"],
        [*principal, "--operation", "Describe", "--group", "tailrace-reader"],
    ]
    assert main(["cluster", "acls", *options, "-o", "json"]) == ExitCode.OK
    data = json.loads(capsys.readouterr().out)
    assert data["cluster_id"] == "c"
    assert [(each["role"], each["principal"]) for each in data["principals"]] == [
        ("tasks", "User:t"),
        ("submitter", "User:CN=shop, O=x"),
    ]
    assert data["principals"][1]["acls"] == [
        {
            "resource_type": "topic",
            "name": "c.submissions",
            "pattern_type": "literal",
            "operations": ["Write"],
            "reason": "writes requests, from any language",
        },
        {
            "resource_type": "topic",
            "name": "c.answers",
            "pattern_type": "literal",
            "operations": ["Read"],
            "reason": "reads the answers to its requests",
        },
        {
            "resource_type": "group",
            "name": "tailrace-reader",
            "pattern_type": "literal",
            "operations": ["Describe"],
            "reason": "readers of topics name this group; nothing is committed to it",
        },
    ]


@pytest.mark.parametrize(
    ("principal", "message"),
    [
        ("master=User:m", "there is no role 'master'"),
        ("tasks=m", "'m' is no principal of Kafka"),
        ("tasks", "''"),
    ],
)
def test_wrong_principal_is_refused_in_one_line(
    principal: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "acls", "--home", str(tmp_path), "--principal", principal]) == ExitCode.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_submitter_of_tenant_gets_rights_on_its_topics_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--home", str(tmp_path), "--cluster-id", "c", "-D", "dispatcher.tenants=pay;search"]
    options += ["--principal", "submitter@pay=User:p", "--principal", "jobmanager=User:m", "-o", "json"]
    assert main(["cluster", "acls", *options]) == ExitCode.OK
    submitter, master = json.loads(capsys.readouterr().out)["principals"]
    assert (submitter["role"], submitter["tenant"]) == ("submitter", "pay")
    granted = [
        (acl["name"], acl["operations"]) for acl in submitter["acls"] if acl["resource_type"] == "topic"
    ]
    assert granted == [
        ("c.submissions.pay", ["Write"]),
        ("c.answers.pay", ["Read"]),
        ("c.job.pay_", ["Read"]),
    ]
    read = {acl["name"] for acl in master["acls"] if "Read" in acl["operations"]}
    assert {"c.submissions", "c.submissions.pay", "c.submissions.search"} <= read


@pytest.mark.parametrize("name", ["auditor@pay", "submitter@", "submitter@Pay", "submitter@a.b"])
def test_tenant_of_other_role_or_with_impossible_name_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options = ["--home", str(tmp_path), "--cluster-id", "c", "--principal", f"{name}=User:p"]
    assert main(["cluster", "acls", *options]) == ExitCode.USAGE
    assert "only a submitter belongs to a tenant" in capsys.readouterr().err
