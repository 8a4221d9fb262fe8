"""Requirements files: pip resolves them once, where the program is submitted, into the wheels that the job ships."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from wheels import make_wheel

from tailrace.pipelines.api import ProgramError, StreamExecutionEnvironment
from tailrace.pipelines.api.requirements import resolve_requirements


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Returns the directory of some wheels, the only place where pip looks."""
    make_wheel(tmp_path, "till_y", {"till_y.py": "RATE = 1"}, needs=["shelf-y>=1", "msgspec"])
    make_wheel(tmp_path, "shelf_y", {"shelf_y.py": ""}, version="1.2")
    make_wheel(tmp_path, "shelf_y", {"shelf_y.py": ""}, version="0.9")
    make_wheel(tmp_path, "msgspec", {"msgspec.py": ""}, version=version("msgspec"))
    make_wheel(tmp_path, "msgspec", {"msgspec.py": ""}, version="0.0.1")
    return tmp_path


def requirements(index: Path, *lines: str) -> str:
    path = index / "requirements.txt"
    path.write_text("\n".join(["--no-index", f"--find-links {index}", *lines]))
    return str(path)


def test_wheels_and_what_they_need_are_shipped_without_what_tailrace_needs(index: Path) -> None:
    env = StreamExecutionEnvironment()
    env.set_python_requirements(requirements(index, "till_y"))
    env.from_collection([1]).print()
    shipped = env.get_job_graph("job").python_files
    assert [file.path for file in shipped] == ["shelf_y-1.2-py3-none-any.whl", "till_y-1.0-py3-none-any.whl"]
    assert shipped[1].content == (index / "till_y-1.0-py3-none-any.whl").read_bytes()


@pytest.mark.parametrize(
    ("line", "reason"),
    [("nothing-of-that-name", "nothing-of-that-name"), ("msgspec==0.0.1", "msgspec"), ("till_y==", "till_y")],
)
def test_requirements_that_pip_cannot_resolve_are_refused_with_its_reason(
    index: Path, line: str, reason: str
) -> None:
    with pytest.raises(
        ProgramError, match=rf"pip does not resolve .*requirements\.txt: .*{reason}"
    ) as caught:
        resolve_requirements(requirements(index, line))
    assert "\n" not in str(caught.value)


def test_requirements_file_that_is_missing_is_named(index: Path) -> None:
    with pytest.raises(
        ProgramError, match=r"nowhere\.txt can't be resolved: there is no such requirements file"
    ):
        StreamExecutionEnvironment().set_python_requirements(str(index / "nowhere.txt"))


def test_graph_names_the_packages_that_its_functions_import() -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    from httpx import URL

    def size(line: str) -> int:
        return int(pc.sum(pa.array([len(line)])).as_py()) + len(str(URL(line)))

    env = StreamExecutionEnvironment()
    env.from_collection(["a"]).map(size).map(len).print()
    operators = [operator for vertex in env.get_job_graph("job").vertices for operator in vertex.operators]
    assert [json.loads(operator.parameters).get("modules") for operator in operators] == [
        None,
        ["httpx", "pyarrow"],
        None,
        None,
    ]
