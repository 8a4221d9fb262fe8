"""`tailrace plan` from the command line."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.services.cli import main
from tailrace.services.cli.app import load_command
from tailrace.services.cli.exit_codes import ExitCode

PROGRAM = """
import sys
from tailrace import StreamExecutionEnvironment, TumblingProcessingTimeWindows

env = StreamExecutionEnvironment.get_execution_environment()
words = env.read_text_file("words.txt").flat_map(str.split, output_type=str).set_parallelism(4)
pairs = words.map(lambda word: (word, 1), output_type=tuple[str, int]).set_parallelism(4)
counts = pairs.key_by(0).window(TumblingProcessingTimeWindows.of(seconds=5)).sum(1)
counts.set_parallelism(3).print(*sys.argv[1:]).set_parallelism(3)
env.execute("words")
"""


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to a directory without a cluster, and unsets TAILRACE_ variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(name)
    Path("words.py").write_text(PROGRAM)


def test_all_three_graphs_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "words.py"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    assert [line for line in out.splitlines() if line.endswith("Graph")] == [
        "StreamGraph",
        "JobGraph",
        "ExecutionGraph",
    ]
    assert "8 subtasks in 4 slots: 4 of default" in out
    assert "not chained: records are partitioned between them;" in out
    assert "through virtual node 4: HASH" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("graph", "title"), [("stream", "StreamGraph"), ("job", "JobGraph"), ("execution", "ExecutionGraph")]
)
def test_one_graph_is_printed(graph: str, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--graph", graph, "words.py"]) == ExitCode.OK
    assert [line for line in capsys.readouterr().out.splitlines() if line.endswith("Graph")] == [title]


def test_json_plan_has_format_of_flink(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-o", "json", "words.py"]) == ExitCode.OK
    plan = json.loads(capsys.readouterr().out)
    assert [(item["id"], item["pact"], item["parallelism"]) for item in plan["nodes"]] == [
        (1, "Data Source", 1),
        (2, "Operator", 4),
        (3, "Operator", 4),
        (5, "Operator", 3),
        (6, "Data Sink", 3),
    ]
    assert plan["nodes"][0] == {
        "id": 1,
        "type": "Source: Files words.txt",
        "pact": "Data Source",
        "contents": "Source: Files words.txt",
        "parallelism": 1,
    }
    assert [element.get("predecessors") for element in plan["nodes"]] == [
        None,
        [{"id": 1, "ship_strategy": "REBALANCE", "side": "first"}],
        [{"id": 2, "ship_strategy": "FORWARD", "side": "first"}],
        [{"id": 3, "ship_strategy": "HASH", "side": "first"}],
        [{"id": 5, "ship_strategy": "FORWARD", "side": "first"}],
    ]


@pytest.mark.parametrize(("output", "first"), [("mermaid", "flowchart TD"), ("dot", 'digraph "words" {')])
def test_mermaid_and_dot_are_printed(output: str, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-o", output, "words.py"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[0] == first
    assert all(title in out for title in ("StreamGraph", "JobGraph", "ExecutionGraph", "words.txt"))


def test_parallelism_options_and_arguments_reach_program(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "plan",
        "-p",
        "2",
        "-D",
        "execution.mini-batch=true",
        "--graph",
        "stream",
        "words.py",
        "here",
    ]
    assert main(arguments) == ExitCode.OK
    assert "Source: Files words.txt" in (out := capsys.readouterr().out)
    assert "x2" in out


TAILRACE_OPTIONS = [
    ["-o", "out"],
    ["--output", "report/"],
    ["-p", "many"],
    ["-D", "no=option"],
    ["-s"],
    ["-d"],
    ["--py-file"],
    ["--home", "x"],
    ["--graph", "tree"],
    ["--help"],
    ["--"],
    ["--unknown=1"],
]


@given(st.lists(st.sampled_from(TAILRACE_OPTIONS), max_size=5))
@settings(max_examples=10, deadline=None)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_arguments_after_program_belong_to_program(command: str, drawn: list[list[str]]) -> None:
    arguments = [part for group in drawn for part in group]
    parsed = load_command(command).make_context(command, ["-p", "2", "words.py", *arguments]).params
    assert (parsed["program"], parsed["parallelism"], list(parsed["arguments"])) == ("words.py", 2, arguments)


def test_option_after_program_reaches_program(capsys: pytest.CaptureFixture[str]) -> None:
    checks = "import sys\nassert sys.argv[1:] == ['--output', 'x', '-p', '9']\ndel sys.argv[1:]\n"
    Path("args.py").write_text(checks + PROGRAM)
    assert main(["plan", "-p", "2", "args.py", "--output", "x", "-p", "9"]) == ExitCode.OK
    assert "x2" in capsys.readouterr().out


def test_program_that_rejects_tailrace_option_says_where_it_belongs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("strict.py").write_text(f"import argparse\nargparse.ArgumentParser().parse_args()\n{PROGRAM}")
    assert main(["plan", "strict.py", "-p", "2"]) == ExitCode.JOB
    assert "-p stands after strict.py and goes to the program" in capsys.readouterr().err


def test_program_may_be_given_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.py").write_text("def words():\n" + "".join(f"    {line}\n" for line in PROGRAM.splitlines()))
    assert main(["plan", "--graph", "job", "jobs:words"]) == ExitCode.OK
    assert "3 vertices, 2 edges" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "arguments", "code", "says"),
    [
        (None, [], ExitCode.JOB, "the program absent.py does not exist: there is no file of that name"),
        ("1 / 0", [], ExitCode.JOB, "program.py:1: program.py raised ZeroDivisionError: division by zero"),
        ("print('x')", [], ExitCode.JOB, "program.py ended without executing a job: call env.execute()"),
        ("def f(:", [], ExitCode.JOB, "program.py:1: program.py raised SyntaxError"),
        ("import sys; sys.exit('no more')", [], ExitCode.JOB, "program.py:1: program.py: no more"),
        (
            "import os; os.abort()",
            [],
            ExitCode.JOB,
            "program.py was killed by SIGABRT before its graph was complete",
        ),
        (PROGRAM, ["--graph", "job", "-o", "json"], ExitCode.USAGE, "-o json prints the StreamGraph"),
        (PROGRAM, ["--graph", "tree"], ExitCode.USAGE, "Invalid value for '--graph'"),
        (PROGRAM, ["-o", "svg"], ExitCode.USAGE, "Invalid value for '--output'"),
        (PROGRAM, ["-D", "slots=2"], ExitCode.USAGE, "slots"),
        (PROGRAM, ["--py-file", "absent"], ExitCode.JOB, "absent can't be shipped"),
        (PROGRAM, ["-p", "0"], ExitCode.USAGE, "Invalid value for '--parallelism'"),
    ],
)
def test_error_is_one_line(
    program: str | None, arguments: list[str], code: ExitCode, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "absent.py"
    if program is not None:
        name = "program.py"
        Path(name).write_text(dedent(program))
    assert main(["plan", *arguments, name]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tailrace: ")
    assert err.count("\n") == 1
    assert says in err


def test_topics_of_job_are_commands_and_json_of_same_topics(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-D", "cluster.id=team.prod", "-D", "topics.replication-factor=3", "--topics", "words-1"]
    assert main(["plan", *options, "words.py"]) == ExitCode.OK
    commands = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["plan", *options, "-o", "json", "words.py"]) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert (shown["cluster_id"], shown["job_id"]) == ("team.prod", "words-1")
    assert all(topic["topic"].startswith("team.prod.job.words-1.") for topic in shown["topics"])
    # Two channels, three changelogs, and the output.
    assert [topic["partitions"] for topic in shown["topics"]] == [4, 3, 1, 4, 3, 1]
    assert shown["topics"][-1]["config"]["retention.ms"] != "-1"
    for command, topic in zip(commands, shown["topics"], strict=True):
        assert command[:4] == ["kafka-topics.sh", "--bootstrap-server", "$BOOTSTRAP_SERVERS", "--create"]
        given = list(zip(command[4::2], command[5::2], strict=True))
        assert dict(given) | {"--config": ""} == {
            "--topic": topic["topic"],
            "--partitions": str(topic["partitions"]),
            "--replication-factor": "3",
            "--config": "",
        }
        assert dict(value.split("=") for name, value in given if name == "--config") == topic["config"]


@pytest.mark.parametrize(
    "options", [("--topics", "a/b"), ("--topics", "j", "--graph", "job"), ("--topics", "j", "-o", "dot")]
)
def test_topics_with_wrong_id_or_graph_are_refused(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *options, "words.py"]) == ExitCode.USAGE
    assert capsys.readouterr().err.count("\n") == 1
