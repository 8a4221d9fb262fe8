"""The files that a job ships: which ones are allowed, and that they are imported before all others."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.graph.python_files import (
    MAX_BYTES,
    MAX_FILES,
    check,
    collect_files,
    merge_files,
    unpack,
    validation_errors,
)
from tailrace.schemas.types import PythonFile


def file(path: str, content: bytes = b"") -> PythonFile:
    return PythonFile(path=path, content=content)


IMPOSSIBLE = {
    "": "no relative path",
    "/etc/passwd": "no relative path",
    "../up.py": "no relative path",
    "a/../../up.py": "no relative path",
    "a/./b.py": "no relative path",
    "a//b.py": "no relative path",
    "a/": "no relative path",
    "C:/a.py": "no relative path",
    "a\\b.py": "no relative path",
    "a\nb.py": "no relative path",
    "a\0b.py": "no relative path",
    "x" * 600: "more than 512 characters",
    "é" * 150 + ".py": "more than 200 bytes in a part",
    "json.py": "would hide the module json of Python's own",
    "email/helpers.py": "would hide the module email of Python's own",
    "tailrace/mine.py": "would hide the module tailrace that tailrace needs",
    "pandas/__init__.py": "would hide the module pandas",
}
POSSIBLE = [
    "helpers.py",
    "shop/prices.py",
    "lib.zip",
    "json/words.txt",
    "data/a b.csv",
    "pipelines/x.py",
    "services.py",
]


@pytest.mark.parametrize(("path", "why"), IMPOSSIBLE.items())
def test_path_that_leaves_directory_or_hides_required_module_is_rejected(
    path: str, why: str, tmp_path: Path
) -> None:
    (fault,) = validation_errors([file(path)])
    assert why in fault
    assert "\n" not in fault
    with pytest.raises(ProgramError):
        check([file(path)])
    with pytest.raises(ProgramError):
        unpack([file(path, b"x")], tmp_path / "here")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_valid_files_are_shipped() -> None:
    assert list(validation_errors([file(path) for path in POSSIBLE])) == []


@given(st.lists(st.text(st.sampled_from("./a\\:"), max_size=8), max_size=3))
def test_nothing_is_written_outside_directory(paths: list[str]) -> None:
    for path in paths:
        if not list(validation_errors([file(path)])):
            resolved = (Path("/here") / path).resolve()
            assert resolved.is_relative_to("/here")
            assert resolved != Path("/here")


def test_conflicting_paths_are_rejected() -> None:
    assert list(validation_errors([file("a.py"), file("a.py")])) == ["2 shipped files have the path 'a.py'"]
    assert list(validation_errors([file("a"), file("a/b.py")])) == [
        "the shipped file 'a' has the path of a directory of others"
    ]


def test_too_many_or_too_large_files_are_rejected() -> None:
    (fault,) = validation_errors([file(f"f{number}.py") for number in range(MAX_FILES + 1)])
    assert "put them into a zip file" in fault
    (fault,) = validation_errors([file("model.bin", bytes(MAX_BYTES)), file("b", b"1")])
    assert f"{MAX_BYTES + 1:,} bytes" in fault


def test_modules_of_directory_without_package_can_be_imported(tmp_path: Path) -> None:
    for path in ("rates.py", "json.py", "tax/__init__.py", "tax/vat.py", "data/eur.py", "notes.txt"):
        (tmp_path / "libs" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "libs" / path).touch()
    files = collect_files(str(tmp_path / "libs"))
    check(files)
    assert {file.path for file in files if not file.path.startswith("libs/")} == {
        "rates.py",
        "tax/__init__.py",
        "tax/vat.py",
    }
    (tmp_path / "libs" / "__init__.py").touch()
    assert all(file.path.startswith("libs/") for file in collect_files(str(tmp_path / "libs")))


def test_directory_is_shipped_under_its_name_without_caches_of_python(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    for path in ("prices.py", "data/eur.csv", "__pycache__/prices.cpython-311.pyc", ".git/config"):
        (shop / path).parent.mkdir(parents=True, exist_ok=True)
        (shop / path).write_text(path)
    assert collect_files(str(shop)) == (
        file("shop/data/eur.csv", b"data/eur.csv"),
        file("shop/prices.py", b"prices.py"),
        file("prices.py", b"prices.py"),
    )
    assert collect_files(str(shop / "prices.py")) == (file("prices.py", b"prices.py"),)
    with pytest.raises(ProgramError, match="no such file"):
        collect_files(str(tmp_path / "nowhere"))


def test_later_file_replaces_earlier_one_at_same_path() -> None:
    assert merge_files([file("b", b"1"), file("a", b"1")], [file("b", b"2")]) == (
        file("a", b"1"),
        file("b", b"2"),
    )


PROBE = """
import sys
import pipelines.old, other
from pathlib import Path
from tailrace.pipelines.functions.files import shipped_file
from tailrace.pipelines.graph.python_files import import_from
import_from(Path(sys.argv[1]))
import pipelines.mine, zipped, other as other_still
print(pipelines.mine.NAME, zipped.NAME, other_still is other, shipped_file("data/words.txt").read_text())
try:
    shipped_file("../secret")
except FileNotFoundError as error:
    print(error)
"""


def test_shipped_module_replaces_one_already_imported(tmp_path: Path) -> None:
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    (elsewhere / "pipelines").mkdir(parents=True)
    for path in ("pipelines/__init__.py", "pipelines/old.py", "other.py"):
        (elsewhere / path).touch()
    (tmp_path / "secret").touch()
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped.py", "NAME = 'zipped'")
    files = [
        file("pipelines/__init__.py"),
        file("pipelines/mine.py", b"NAME = 'mine'"),
        file("data/words.txt", b"to be"),
        file("lib.zip", (tmp_path / "lib.zip").read_bytes()),
    ]
    unpack(files, here)
    result = subprocess.run(
        [sys.executable, "-c", PROBE, str(here)],
        env={"PYTHONPATH": str(elsewhere)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == [
        "mine zipped True to be",
        (
            "no shipped file has the path '../secret': ship it with add_python_file or --py-file. Shipped are: data,"
            " lib.zip, pipelines"
        ),
    ]
