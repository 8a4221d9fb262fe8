"""Wheels and archives that a job ships: unpacked where it runs, and nothing outside of its directory."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from wheels import make_wheel

from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.graph.imported_modules import check_modules
from tailrace.pipelines.graph.python_files import check, collect_files, read_archive, unpack
from tailrace.schemas.types import OperatorConfig, PythonFile

HERE = f"python{sys.version_info.major}.{sys.version_info.minor}"


def imported(folder: Path, expression: str) -> str:
    """Returns what another process prints that imports from the shipped files first."""
    program = (
        "from pathlib import Path\n"
        "from tailrace.pipelines.graph.python_files import import_from\n"
        f"import_from(Path({str(folder)!r}))\n"
        "import tailrace\n"
        f"{expression}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def tar_of(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_packages_of_wheels_are_imported_in_place_of_older_ones(tmp_path: Path) -> None:
    till = make_wheel(tmp_path, "till", {"till/__init__.py": "RATE = 2.5", "till/data.txt": "x"})
    shelf = make_wheel(tmp_path, "shelf", {"shelf.py": "import till\nRATE = till.RATE * 2"})
    unpack([*collect_files(str(till)), *collect_files(str(shelf))], tmp_path / "job")
    assert imported(tmp_path / "job", "import shelf; print(shelf.RATE)") == "5.0"
    assert not list((tmp_path / "job").glob("*.whl"))


@pytest.mark.parametrize(
    ("name", "tag", "reason"),
    [
        ("till", "cp27-none-any", "is not for Python 3"),
        ("till", "py3-none-win_amd64", "is not for Python 3"),
        ("numpy", "py3-none-any", "would hide the module numpy that tailrace needs"),
        ("confluent_kafka", "py3-none-any", "would hide the module confluent_kafka"),
    ],
)
def test_wheel_that_cannot_be_imported_is_named(tmp_path: Path, name: str, tag: str, reason: str) -> None:
    wheel = make_wheel(tmp_path, name, {f"{name}.py": ""}, tag=tag)
    with pytest.raises(ProgramError, match=reason) as caught:
        unpack(collect_files(str(wheel)), tmp_path / "job")
    assert wheel.name in str(caught.value)


def test_archive_is_unpacked_into_its_directory(tmp_path: Path) -> None:
    packed = tar_of(tmp_path / "rates.tar.gz", **{"2026/eur.txt": "1", "usd.txt": "2"})
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("a/b.txt", "3")
    files = [read_archive(str(packed)), read_archive(str(tmp_path / "more.zip"), "other")]
    check(files)
    unpack(files, job := tmp_path / "job")
    found = {str(path.relative_to(job)): path.read_text() for path in job.rglob("*") if path.is_file()}
    assert found == {"rates/2026/eur.txt": "1", "rates/usd.txt": "2", "other/a/b.txt": "3"}
    assert imported(job, "print(tailrace.shipped_file('rates/usd.txt').read_text())") == "2"


def test_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (plain := tmp_path / "plain.zip").write_text("no archive")
    with pytest.raises(ProgramError, match="neither a zip nor a tar file"):
        read_archive(str(plain))
    with pytest.raises(ProgramError, match=r"nowhere\.zip can't be shipped: No such file"):
        read_archive(str(tmp_path / "nowhere.zip"))
    packed = tar_of(tmp_path / "rates.bin", a="1")
    with pytest.raises(ProgramError, match="its name ends with none of"):
        read_archive(str(packed))
    assert read_archive(str(packed), "rates").path == "rates"
    cut = PythonFile(path="rates", content=packed.read_bytes()[:-20], archive=True)
    with pytest.raises(ProgramError, match="can't be unpacked"):
        unpack([cut], tmp_path / "job")


def test_no_archive_writes_outside_of_its_directory(tmp_path: Path) -> None:
    packed = tar_of(tmp_path / "evil.tar.gz", **{"../outside.txt": "1"})
    with pytest.raises(ProgramError, match="can't be unpacked"):
        unpack([read_archive(str(packed))], tmp_path / "job")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../../outside.txt", "1")
    unpack([read_archive(str(tmp_path / "evil.zip"))], tmp_path / "job2")
    assert not list(tmp_path.glob("outside.txt"))
    assert not (tmp_path / "job" / "outside.txt").exists()


def test_packed_environment_must_be_of_this_python(tmp_path: Path) -> None:
    here = tar_of(tmp_path / "env.tar.gz", **{f"lib/{HERE}/site-packages/till.py": "RATE = 3"})
    unpack([read_archive(str(here))], tmp_path / "job")
    assert imported(tmp_path / "job", "import till; print(till.RATE)") == "3"
    other = tar_of(tmp_path / "old.tar.gz", **{"lib/python3.1/site-packages/till.py": ""})
    unpack([read_archive(str(other))], tmp_path / "job2")
    with pytest.raises(ProgramError, match=rf"environment old is of python3\.1, and the cluster runs {HERE}"):
        check_modules([], str(tmp_path / "job2"))


def operator(*modules: str) -> OperatorConfig:
    listed = ", ".join(f'"{module}"' for module in modules)
    return OperatorConfig(
        operator_id="o",
        name="Price",
        kind="map",
        parameters=f'{{"modules": [{listed}]}}',
        code=b"",
        location="shop.py:7",
    )


def test_missing_module_is_found_without_an_import(tmp_path: Path) -> None:
    check_modules([operator("pyarrow", "json")], None)
    with pytest.raises(
        ProgramError, match=r"operator 'Price' \(shop\.py:7\) imports the module till_x, which is not"
    ):
        check_modules([operator("pyarrow", "till_x")], None)
    with zipfile.ZipFile(tmp_path / "library.zip", "w") as archive:
        archive.writestr("zipped_x.py", "raise SystemError")
    (tmp_path / "loose_x.py").write_text("raise SystemError")
    wheel = make_wheel(tmp_path, "till_x", {"till_x/__init__.py": "raise SystemError"})
    shipped = [
        *collect_files(str(tmp_path / "library.zip")),
        *collect_files(str(tmp_path / "loose_x.py")),
        *collect_files(str(wheel)),
    ]
    unpack(shipped, tmp_path / "job")
    check_modules([operator("till_x", "loose_x", "zipped_x")], str(tmp_path / "job"))
