"""Jars come from a cache that is complete or absent. The error of a failed download says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.infra import jars, versions
from tailrace.infra.versions import Coordinate, JarSet

NOWHERE = JarSet("nowhere", (Coordinate("example.invalid", "no-such-thing", "1.0"),), transitive=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns Ivy settings whose only repository is an empty folder, as on a machine without network."""
    settings = tmp_path / "ivysettings.xml"
    pattern = tmp_path / "empty" / "[artifact]-[revision].[ext]"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("TAILRACE_IVY_SETTINGS", str(settings))


def test_cache_directory_follows_environment_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert jars.cache_dir() == tmp_path / "own"
    monkeypatch.delenv("TAILRACE_CACHE_DIR")
    assert jars.cache_dir() == tmp_path / "xdg" / "tailrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_dir() == tmp_path / ".cache" / "tailrace"


def test_cached_jars_need_no_network(cache: Path, unreachable: None) -> None:
    folder = jars.jar_folder(NOWHERE)
    folder.mkdir(parents=True)
    (folder / "no-such-thing-1.0.jar").touch()
    assert jars.resolve(NOWHERE) == [folder / "no-such-thing-1.0.jar"]


def test_missing_jar_error_says_what_to_do(cache: Path, unreachable: None) -> None:
    with pytest.raises(jars.JarsUnavailable) as raised:
        jars.resolve(NOWHERE)
    assert "example.invalid#no-such-thing;1.0" in str(raised.value)
    assert "TAILRACE_IVY_SETTINGS" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_failed_download_leaves_no_complete_folder(cache: Path, unreachable: None) -> None:
    with pytest.raises(jars.JarsUnavailable):
        jars.resolve(NOWHERE)
    assert not jars.jar_folder(NOWHERE).exists()
    assert [path.name for path in (cache / "jars").iterdir() if path.is_dir()] == []


def test_each_version_has_its_own_folder() -> None:
    newer = JarSet("nowhere", (Coordinate("example.invalid", "no-such-thing", "1.1"),), transitive=False)
    assert jars.jar_folder(newer) != jars.jar_folder(NOWHERE)


def test_connector_version_matches_installed_spark() -> None:
    from importlib.metadata import version

    assert version("pyspark") == versions.SPARK_VERSION


@pytest.mark.integration
def test_spark_kafka_source_has_exactly_its_jars() -> None:
    assert {path.name for path in jars.spark_jars()} == {
        f"{c.name}-{c.revision}.jar" for c in versions.SPARK_KAFKA_JARS.coordinates
    }


@pytest.mark.integration
def test_kafka_classpath_has_broker_and_its_dependencies() -> None:
    names = {path.name for path in jars.kafka_classpath()}
    assert f"kafka_{versions.SCALA_VERSION}-{versions.KAFKA_VERSION}.jar" in names
    assert f"kafka-clients-{versions.KAFKA_VERSION}.jar" in names
