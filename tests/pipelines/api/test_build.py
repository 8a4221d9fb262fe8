"""Programs as files and as entry points: their graphs, and the errors of programs without a graph."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest
from polling import TIMEOUT_S, wait_until
from process_status import has_ended

from tailrace.pipelines.api import JobExecutionResult, ProgramError
from tailrace.pipelines.api.build import build, build_file, run_file
from tailrace.pipelines.graph.build_server import BuildServer
from tailrace.pipelines.graph.program import BuildRequest, build_request
from tailrace.pipelines.graph.program import build as build_in_a_child
from tailrace.schemas.types import JobGraph, JobStatus, PythonFile

HEAD = """
import sys
from dataclasses import dataclass
from tailrace import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
"""


class Program:
    """Writes programs into a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, text: str, name: str = "program.py") -> str:
        path = self.folder / name
        path.write_text(dedent(HEAD) + dedent(text))
        return str(path)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Returns a writer whose folder is the working directory, so that locations are short, and importable in child
    processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return Program(tmp_path)


class Cluster:
    """An executor that records its graphs."""

    def __init__(self) -> None:
        self.graphs: list[JobGraph] = []

    def execute(self, job_graph: JobGraph) -> Any:
        self.graphs.append(job_graph)
        return Client(f"job-{len(self.graphs)}")


class Client:
    def __init__(self, job_id: str) -> None:
        self.job_id = job_id

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def cancel(self) -> None: ...

    def trigger_checkpoint(self) -> str:
        raise NotImplementedError

    def trigger_savepoint(self, directory: str | None = None) -> str:
        raise NotImplementedError

    def stop_with_savepoint(self, directory: str | None = None, *, drain: bool = False) -> str:
        raise NotImplementedError

    def result(self) -> JobExecutionResult:
        return JobExecutionResult(self.job_id, JobStatus.FINISHED)


def test_file_runs_as_main_with_arguments(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    path = program(
        """
        if __name__ == "__main__":
            env.socket_text_stream("localhost", int(sys.argv[1])).map(str.upper).print()
            print(sys.argv[0], env.execute("upper").job_id)
            env.socket_text_stream("localhost", 2).print()
            print(env.execute("second").status)
        """
    )
    cluster = Cluster()
    run_file(path, ["77"], cluster, parallelism=3, configuration={"a": "b"})
    assert [graph.name for graph in cluster.graphs] == ["upper", "second"]
    assert [v.parallelism for v in cluster.graphs[0].vertices] == [1, 3]
    assert [v.name for v in cluster.graphs[1].vertices] == ["Source: Socket Stream", "Sink: Print"]
    assert cluster.graphs[0].configuration == {"a": "b"}
    assert '"port":77' in cluster.graphs[0].vertices[0].operators[0].parameters
    assert capsys.readouterr().out == f"{path} job-1\nFINISHED\n"


def test_functions_of_program_and_neighbour_modules_are_pickled_by_value(program: Program) -> None:
    helper = program.folder / "helper.py"
    helper.write_text("def shout(line: str) -> str: return line.upper() + MARK\nMARK = '!'\n")
    path = program(
        """
        import helper
        @dataclass
        class Line:
            text: str
        def line(text: str) -> Line: return Line(helper.shout(text))
        env.socket_text_stream("localhost", 1).map(line).map(helper.shout).print()
        env.execute("lines")
        """
    )
    graph = build_file(path)
    sys.modules.pop("helper")
    helper.unlink()
    codes = [operator.code for operator in graph.vertices[0].operators if operator.code]
    child = f"import pickle; a, b = {codes!r}; print(pickle.loads(a)[0]('x'), pickle.loads(b)[0]('y'))"
    result = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=True, cwd="/"
    )
    assert result.stdout == "Line(text='X!') Y!\n"


def test_installed_functions_are_pickled_by_name() -> None:
    graph = build("tailrace.pipelines.examples.window_word_count:main", ["--port", "1"])
    codes = [operator.code for vertex in graph.vertices for operator in vertex.operators if operator.code]
    assert all(len(code) < 200 for code in codes)
    assert [function.__module__ for function in pickle.loads(codes[0])] == [
        "tailrace.pipelines.examples.window_word_count"
    ]


FILES = {
    "": "program.py ended without executing a job: call env.execute() on its environment",
    "env.execute('nothing')": "the program defines no operators: there is nothing to execute",
    "def broken(": "program.py:6: program.py raised SyntaxError: '(' was never closed",
    "import no_such_module": "program.py:6: program.py raised ModuleNotFoundError: No module named 'no_such_module'",
    "int('x')": "program.py:6: program.py raised ValueError: invalid literal for int() with base 10: 'x'",
    "raise KeyError": "program.py:6: program.py raised KeyError",
    "raise ValueError('two\\nlines')": "program.py:6: program.py raised ValueError: two lines",
    "sys.exit(3)": "program.py:6: program.py exited with status 3",
    "sys.exit('no port')": "program.py:6: program.py: no port",
    "env.socket_text_stream('h', 1).map(3)": "map at program.py:6: expected a function or a MapFunction, not int 3",
    "import json; json.loads('{')": "program.py:6: program.py raised JSONDecodeError",
    "raise GeneratorExit": "program.py:6: program.py raised GeneratorExit",
}


@pytest.mark.parametrize(("text", "message"), FILES.items(), ids=list(FILES))
def test_file_without_graph_says_why(program: Program, text: str, message: str) -> None:
    program(text)
    for run in (lambda: build_file("program.py"), lambda: run_file("program.py", [], Cluster())):
        with pytest.raises(ProgramError) as caught:
            run()
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)


def test_missing_file_is_reported(program: Program) -> None:
    with pytest.raises(ProgramError, match=r"the program nothing.py does not exist: there is no file"):
        build_file("nothing.py")
    with pytest.raises(ProgramError, match=r"there is a directory of that name"):
        build_file(str(program.folder))


def test_exit_with_status_0_is_no_error(program: Program) -> None:
    run_file(program("sys.exit(0)"), [], Cluster())
    with pytest.raises(ProgramError, match="exited with status 0"):
        build_file(program("sys.exit(0)"))


def test_code_after_execute_does_not_affect_graph(program: Program) -> None:
    path = program(
        """
        env.socket_text_stream("localhost", 1).print()
        try:
            env.execute("first")
        except Exception:
            sys.exit("caught")
        finally:
            raise ValueError("afterwards")
        """
    )
    assert build_file(path).name == "first"


def test_process_state_is_restored(program: Program) -> None:
    before = sys.argv[:], sys.path[:], sys.modules["__main__"]
    with pytest.raises(ProgramError):
        build_file(program("sys.argv += ['x']; sys.path += ['y']"))
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


TARGETS = {
    "": "the entry point '' is not of the form module:function",
    "module": "the entry point 'module' is not of the form module:function",
    "no_such_module:main": "the entry point 'no_such_module:main' does not exist: no module 'no_such_module' can be",
    "tailrace.nothing:main": "the entry point 'tailrace.nothing:main' does not exist: no module 'tailrace.nothing'",
    "entry:nothing": "the entry point 'entry:nothing' does not exist: entry has no nothing",
    "entry:NUMBER": "the entry point 'entry:NUMBER' is not a function but int",
    "entry:idle": "entry:idle ended without executing a job",
    "entry:fail": "entry.py:7: entry:fail raised ValueError: no good",
    "entry:needs": "entry:needs raised TypeError: needs() missing 1 required positional argument: 'argument'",
    "entry:usage": "entry.py:9: entry:usage exited with status 2; its last output: usage: entry PORT",
    "entry:crash": "entry:crash exited with status 7 before its graph was complete",
    "entry:kill": "entry:kill was killed by SIGKILL before its graph was complete; its last output: goodbye",
    "broken:main": "broken.py:6: broken:main raised NameError: name 'undefined' is not defined",
    "..:main": "the entry point '..:main' does not name a module",
}
ENTRY = """NUMBER = 1
def fail(): raise ValueError("no good")
def idle(): pass
def usage(): print("usage: entry PORT"); sys.exit(2)
def needs(argument): pass
def crash(): import os; os._exit(7)
def kill(): import os; print("goodbye", flush=True); os.kill(os.getpid(), 9)
def hang(): import time; time.sleep(600)
def count(*arguments):
    print("a program may print")
    import subprocess; subprocess.Popen(["sleep", "600"])
    env.socket_text_stream(arguments[0], 1).print()
    env.execute("counted")
"""


@pytest.mark.parametrize(("target", "message"), TARGETS.items(), ids=list(TARGETS))
def test_entry_point_without_graph_says_why(program: Program, target: str, message: str) -> None:
    program(ENTRY, "entry.py")
    program("undefined", "broken.py")
    with pytest.raises(ProgramError) as caught:
        build_in_a_child(target)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_entry_point_builds_in_its_own_process(program: Program) -> None:
    program(ENTRY, "entry.py")
    graph = build_in_a_child("entry:count", ["a host"], 2)
    assert (graph.name, [v.parallelism for v in graph.vertices]) == ("counted", [1, 2])
    assert "entry" not in sys.modules
    assert graph == build_request(BuildRequest(target="entry:count", arguments=("a host",), parallelism=2))


def test_file_builds_in_its_own_process(program: Program) -> None:
    path = program("env.socket_text_stream('h', 1).print()\nenv.execute('a file')")
    assert build_request(BuildRequest(file=path)).name == "a file"


def test_shipped_file_is_entry_point_of_its_own(program: Program) -> None:
    text = Path(program("env.socket_text_stream(sys.argv[1], 1).print()\nenv.execute(__name__)")).read_bytes()
    files = (PythonFile(path="shipped.py", content=text),)
    run_shipped_file = "tailrace.pipelines.api.build:run_shipped_file"
    graph = build_in_a_child(run_shipped_file, ["shipped.py", "a host"], python_files=files)
    assert (graph.name, [file.path for file in graph.python_files]) == ("__main__", ["shipped.py"])
    with pytest.raises(ProgramError, match=r"other\.py does not exist"):
        build_in_a_child(run_shipped_file, ["other.py"], python_files=files)


def test_hung_program_is_killed(program: Program) -> None:
    program(ENTRY, "entry.py")
    with pytest.raises(ProgramError, match=r"entry:hang did not build its graph within 2 s"):
        build_in_a_child("entry:hang", timeout_s=2)


@pytest.fixture
def server() -> Iterator[BuildServer]:
    made = BuildServer()
    yield made
    made.close()


def test_server_builds_programs_in_isolation(program: Program, server: BuildServer) -> None:
    program(
        """
        import os
        import sys

        def main(name):
            assert not hasattr(sys, "left_behind") and "LEFT" not in os.environ
            sys.left_behind, os.environ["LEFT"] = name, name
            env.socket_text_stream("h", 1).print()
            env.execute(name)

        def hang():
            import time
            time.sleep(600)

        def kill():
            os.kill(os.getpid(), 9)
        """,
        "entry.py",
    )
    for name in ("first", "second"):
        assert build_in_a_child("entry:main", [name], server=server).name == name
        with pytest.raises(ProgramError, match=r"entry:hang did not build its graph within 0.5 s"):
            build_in_a_child("entry:hang", server=server, timeout_s=0.5)
        with pytest.raises(ProgramError, match="was killed by SIGKILL"):
            build_in_a_child("entry:kill", server=server)


def test_end_of_server_ends_its_program(program: Program, server: BuildServer, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program(
        f"""
        import os
        import time

        def main():
            open({str(started)!r} + ".new", "w").write(str(os.getpid()))
            os.replace({str(started)!r} + ".new", {str(started)!r})
            time.sleep(600)
        """,
        "entry.py",
    )
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_in_a_child, "entry:main", server=server)
        wait_until(started.exists, "the start of the program")
        server.close()
        with pytest.raises(ProgramError, match="did not build its graph"):
            building.result(TIMEOUT_S)
    pid = int(started.read_text())
    wait_until(lambda: has_ended(pid), "the end of the program")
    with pytest.raises(ProgramError, match="the build server is closed"):
        build_in_a_child("entry:main", server=server)


def test_cancelled_program_ends_with_all_its_processes(
    program: Program, server: BuildServer, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    program(
        f"""
        import os
        import subprocess
        import time

        def main():
            child = subprocess.Popen(["sleep", "600"])
            open({str(started)!r} + ".new", "w").write(f"{{os.getpid()}} {{child.pid}}")
            os.replace({str(started)!r} + ".new", {str(started)!r})
            time.sleep(600)

        def quick():
            env.socket_text_stream("h", 1).print()
            env.execute("quick")
        """,
        "entry.py",
    )
    server.cancel()
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_in_a_child, "entry:main", server=server)
        wait_until(started.exists, "the start of the program")
        server.cancel()
        with pytest.raises(ProgramError, match="did not build its graph"):
            building.result(TIMEOUT_S)
    for pid in map(int, started.read_text().split()):
        wait_until(lambda pid=pid: has_ended(pid), "the end of the program's processes")
    assert build_in_a_child("entry:quick", server=server).name == "quick"


class SlowBuildServer(BuildServer):
    """Reads no answer before `may_read` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = threading.Event()

    def _line(self, process: subprocess.Popen[bytes], deadline: float | None) -> bytes:
        assert self.may_read.wait(TIMEOUT_S)
        return super()._line(process, deadline)


def test_program_cancelled_at_its_start_leaves_no_process(program: Program) -> None:
    argument = f"600.{os.getpid()}"
    program(
        f"""
        import subprocess
        import time

        def main():
            subprocess.Popen(["sleep", "{argument}"])
            time.sleep(600)
        """,
        "entry.py",
    )
    server, this_process = SlowBuildServer(), psutil.Process()

    def waiting_program() -> psutil.Process | None:
        found = [each for child in this_process.children() for each in child.children()]
        return next((each for each in found if each.status() == psutil.STATUS_SLEEPING), None)

    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_in_a_child, "entry:main", server=server)
        started = wait_until(waiting_program, "the start of the program")
        server.cancel()
        server.may_read.set()
        with pytest.raises(ProgramError, match="did not build its graph"):
            building.result(TIMEOUT_S)
    wait_until(lambda: has_ended(started.pid), "the end of the program")
    running = psutil.process_iter(["cmdline"])
    assert not [each for each in running if argument in (each.info["cmdline"] or ())]


def test_invalid_graph_is_rejected(program: Program) -> None:
    program(
        """
        def main():
            env.socket_text_stream("h", 1)._set(parallelism=3)
            env.execute("three readers")
        """,
        "entry.py",
    )
    with pytest.raises(ProgramError, match=r"built a graph that cannot be run: .* reads from one place"):
        build_in_a_child("entry:main")


def test_api_import_is_fast_and_needs_neither_spark_nor_kafka() -> None:
    heavy = (
        "pyspark",
        "pyarrow",
        "pandas",
        "numpy",
        "cloudpickle",
        "confluent_kafka",
        "fastavro",
        "tailrace.services",
    )
    child = (
        "import sys, tailrace.pipelines.api.build, tailrace.pipelines.graph.program\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert result.stdout.strip() == "[]"
