"""A class data archive is used if it is complete and fits; otherwise the JVM starts without it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tailrace.infra.cds_archives import (
    kafka_archive,
    read_archive_options,
    spark_archive,
    write_archive_options,
)
from tailrace.infra.jars import jar_folder, resolve
from tailrace.infra.prerequisites import find_java
from tailrace.infra.versions import KAFKA_JARS, SPARK_KAFKA_JARS


def test_jvm_gets_no_option_without_archive(tmp_path: Path) -> None:
    assert read_archive_options(tmp_path / "none.jsa") == []


def test_jvm_uses_archive_if_it_is_complete(tmp_path: Path) -> None:
    archive = tmp_path / "cds" / "a.jsa"
    with write_archive_options(archive) as options:
        target = next(o for o in options if o.startswith("-XX:ArchiveClassesAtExit="))
        Path(target.partition("=")[2]).write_bytes(b"classes")
        assert not archive.exists()
    assert archive.read_bytes() == b"classes"
    assert f"-XX:SharedArchiveFile={archive}" in read_archive_options(archive)


def test_failed_training_leaves_no_files(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"

    def fail() -> None:
        with write_archive_options(archive) as options:
            Path(options[0].partition("=")[2]).write_bytes(b"half")
            raise RuntimeError("the broker did not start")

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
def test_archive_is_specific_to_one_java(tmp_path: Path) -> None:
    resolve(KAFKA_JARS)
    one, other = tmp_path / "one", tmp_path / "other"
    one.touch()
    other.touch()
    for where in (kafka_archive, spark_archive):
        assert where(str(one)) != where(str(other))


@pytest.mark.integration
def test_setup_writes_archives() -> None:
    """Without archives everything works, only slower, so no other test notices that they are missing."""
    java = find_java()
    assert [
        archive.name for archive in (kafka_archive(java), spark_archive(java)) if not archive.is_file()
    ] == []


@pytest.mark.parametrize("content", [b"", b"not an archive"])
def test_jvm_starts_despite_corrupt_archive(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.jsa"
    broken.write_bytes(content)
    started = subprocess.run(
        [find_java(), *read_archive_options(broken), "-version"], capture_output=True, text=True, check=False
    )
    assert started.returncode == 0
    assert "warning" not in started.stdout


def test_archive_is_found_through_link_to_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "own"))
    jar_folder(SPARK_KAFKA_JARS).mkdir(parents=True)
    named = spark_archive("java").name
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "jars").symlink_to(tmp_path / "own" / "jars")
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "other"))
    assert spark_archive("java").name == named
