"""Directories of shipped files: one per job, as long as the job has tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.runtime.task_runtime.user_files import UserFiles
from tailrace.schemas.types import PythonFile

OLD = [PythonFile(path="shop/prices.py", content=b"TAX = 19")]
NEW = [PythonFile(path="shop/prices.py", content=b"TAX = 7")]


def test_directory_exists_from_first_to_last_task_of_job(tmp_path: Path) -> None:
    files = UserFiles(tmp_path / "files")
    first, second = files.enter("j", OLD), files.enter("j", OLD)
    assert first is not None
    assert first == second
    assert (Path(first) / "shop/prices.py").read_text() == "TAX = 19"
    files.leave(first)
    assert Path(first).exists()
    files.leave(second)
    assert not Path(first).exists()
    assert files.enter("j", OLD) == first
    assert (Path(first) / "shop/prices.py").exists()


def test_blob_files_are_copied_from_cache(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(b"2.5")
    shipped = [*OLD, PythonFile(path="rates.csv", content=b"", blob="key")]
    files = UserFiles(tmp_path / "files")
    result = files.enter("j", shipped, {"key": str(tmp_path / "content")})
    assert result is not None
    (Path(result) / "rates.csv").write_bytes(b"changed by the job")
    assert (tmp_path / "content").read_bytes() == b"2.5"
    other = [*OLD, PythonFile(path="rates.csv", content=b"", blob="other")]
    with pytest.raises(TaskError, match=r"'rates\.csv' is a blob, which nobody has fetched"):
        files.enter("j", other)


def test_jobs_do_not_share_directories(tmp_path: Path) -> None:
    files = UserFiles(tmp_path / "files")
    results = {files.enter("a", OLD), files.enter("b", OLD), files.enter("b", NEW)}
    assert len(results) == 3
    files.close()
    assert not any(Path(result or "").exists() for result in results)


def test_job_without_files_has_no_directory(tmp_path: Path) -> None:
    files = UserFiles(tmp_path / "files")
    assert files.enter("a", []) is None
    files.leave(None)
    assert not (tmp_path / "files").exists()


def test_directories_of_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "files" / "j-1").mkdir(parents=True)
    UserFiles(tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_files_that_cannot_be_unpacked_fail_task_and_leave_nothing(tmp_path: Path) -> None:
    files = UserFiles(tmp_path / "files")
    with pytest.raises(TaskError, match=r"can't be unpacked: the shipped file '\.\./up\.py'"):
        files.enter("j", [*OLD, PythonFile(path="../up.py", content=b"")])
    assert list(tmp_path.rglob("*.py")) == []
