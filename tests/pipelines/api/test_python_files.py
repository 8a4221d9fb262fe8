"""Files that a program ships: its modules are imported from them, and only other code is pickled."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from tailrace.pipelines.api import ProgramError, StreamExecutionEnvironment
from tailrace.pipelines.api.pickling import local_modules_by_value
from tailrace.pipelines.graph import python_files
from tailrace.pipelines.graph.program import BuildRequest, build_request
from tailrace.pipelines.graph.python_files import MAX_BYTES, unpack
from tailrace.schemas.types import JobGraph, PythonFile

NAMES = ("shipped_helpers", "shipped_shop", "shipped_zipped", "left_behind")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Returns a folder of importable modules of all kinds, which are unloaded afterwards."""
    (tmp_path / "shipped_helpers.py").write_text("def shout(line: str) -> str: return line.upper() + '!'\n")
    (tmp_path / "left_behind.py").write_text("def whisper(line: str) -> str: return line.lower()\n")
    shop = tmp_path / "shipped_shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "prices.py").write_text("def price(line: str) -> int: return len(line)\n")
    (shop / "rates.csv").write_text("EUR,1")
    with zipfile.ZipFile(tmp_path / "library.zip", "w") as archive:
        archive.writestr("shipped_zipped.py", "def reverse(line: str) -> str: return line[::-1]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in list(sys.modules):
        if name.partition(".")[0] in NAMES:
            del sys.modules[name]


def codes(graph: JobGraph) -> list[bytes]:
    return [operator.code for vertex in graph.vertices for operator in vertex.operators if operator.code]


def called_elsewhere(graph: JobGraph, folder: Path) -> str:
    """Returns what the map functions return for a text, in a process with the shipped files only."""
    unpack(graph.python_files, folder)
    program = (
        "import pickle, sys\n"
        "from pathlib import Path\n"
        "from tailrace.pipelines.graph.python_files import import_from\n"
        f"import_from(Path({str(folder)!r}))\n"
        f"print(*[pickle.loads(code)[0]('Abc') for code in {codes(graph)!r}])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    return result.stdout.strip()


def test_shipped_modules_are_imported_and_other_user_modules_pickled(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    env = StreamExecutionEnvironment()
    env.add_python_file("shipped_helpers.py").add_python_file("shipped_shop").add_python_file("library.zip")
    import left_behind  # type: ignore[import-not-found]
    import shipped_helpers  # type: ignore[import-not-found]
    import shipped_shop.prices  # type: ignore[import-not-found]
    import shipped_zipped  # type: ignore[import-not-found]

    stream = env.from_collection(["a"], str)
    for function in (
        shipped_helpers.shout,
        shipped_shop.prices.price,
        shipped_zipped.reverse,
        left_behind.whisper,
    ):
        stream.map(function).print()
    graph = env.get_job_graph()
    assert [file.path for file in graph.python_files] == [
        "library.zip",
        "shipped_helpers.py",
        "shipped_shop/__init__.py",
        "shipped_shop/prices.py",
        "shipped_shop/rates.csv",
    ]
    _, shout, price, reverse, whisper = codes(graph)
    for code in (shout, price, reverse):
        assert len(code) < 200
        assert b"shipped_" in code
    assert pickle.loads(whisper)[0]("A") == "a"
    assert len(whisper) > 200
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert called_elsewhere(without_source(graph), elsewhere) == "ABC! 3 cbA abc"


def without_source(graph: JobGraph) -> JobGraph:
    import msgspec

    (vertex,) = graph.vertices
    return msgspec.structs.replace(
        graph, vertices=(msgspec.structs.replace(vertex, operators=vertex.operators[1:]),)
    )


def test_module_shipped_under_other_name_is_pickled(folder: Path) -> None:
    package = folder / "left_behind"
    (folder / "left_behind.py").unlink()
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("def inner(line: str) -> str: return line\n")
    env = StreamExecutionEnvironment().add_python_file("left_behind/inner.py")
    from left_behind.inner import inner  # type: ignore[import-not-found]

    env.from_collection(["a"], str).map(inner).print()
    graph = env.get_job_graph()
    assert [file.path for file in graph.python_files] == ["inner.py"]
    *_, code = codes(graph)
    del sys.modules["left_behind.inner"], sys.modules["left_behind"]
    (package / "inner.py").unlink()
    assert pickle.loads(code)[0]("a") == "a"


def test_program_can_import_shipped_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(folder)])
    StreamExecutionEnvironment().add_python_file("library.zip").add_python_file(str(folder / "shipped_shop"))
    import shipped_shop.prices
    import shipped_zipped

    assert shipped_zipped.reverse("ab") == "ba"
    assert shipped_shop.prices.price("ab") == 2


def test_oversized_file_is_rejected_when_added(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_files, "MAX_SHIPPED_BYTES", MAX_BYTES)
    (folder / "model.bin").write_bytes(bytes(MAX_BYTES // 2 + 1))
    (folder / "second.bin").write_bytes(bytes(MAX_BYTES // 2 + 1))
    env = StreamExecutionEnvironment().add_python_file("model.bin")
    with pytest.raises(
        ProgramError, match=r"^add_python_file at .*: the files that it ships have 6,291,458 bytes"
    ):
        env.add_python_file("second.bin")
    assert [file.path for file in env._shipped.files] == ["model.bin"]


ENTRY = """
from tailrace import StreamExecutionEnvironment
import shipped_shop.prices
def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(["a"], str).map(shipped_shop.prices.price).print()
    env.execute("shipped")
"""


def test_program_in_shipped_files_ships_them_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = (
        PythonFile(path="entry.py", content=ENTRY.encode()),
        PythonFile(path="shipped_shop/__init__.py", content=b""),
        PythonFile(path="shipped_shop/prices.py", content=b"def price(line: str) -> int: return len(line)"),
    )
    graph = build_request(BuildRequest(target="entry:main", python_files=files))
    assert graph.python_files == files
    assert all(len(code) < 200 for code in codes(graph))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert called_elsewhere(without_source(graph), elsewhere) == "3"


def test_threads_pickle_modules_by_value_one_after_the_other(folder: Path) -> None:
    """The registry is one for all threads: who leaves it would take the modules of the others away."""
    module = importlib.import_module("left_behind")
    inside = threading.Event()
    seen: list[set[str]] = []

    def enter() -> None:
        with local_modules_by_value(lambda _: False):
            inside.set()
            seen.append(cloudpickle.list_registry_pickle_by_value())

    other = threading.Thread(target=enter)
    with local_modules_by_value(lambda _: False):
        other.start()
        assert not inside.wait(0.1)
        assert module.__name__ in cloudpickle.list_registry_pickle_by_value()
    other.join(60)
    assert module.__name__ in seen[0]
    assert module.__name__ not in cloudpickle.list_registry_pickle_by_value()
