"""Jars come from a cache that is whole or absent, and whose failure says what to do."""

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
    """Ivy settings whose only repository is an empty folder: what a machine without network sees."""
    settings = tmp_path / "ivysettings.xml"
    pattern = tmp_path / "empty" / "[artifact]-[revision].[ext]"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{pattern}"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("TAILRACE_IVY_SETTINGS", str(settings))


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert jars.cache_dir() == tmp_path / "own"
    monkeypatch.delenv("TAILRACE_CACHE_DIR")
    assert jars.cache_dir() == tmp_path / "xdg" / "tailrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_dir() == tmp_path / ".cache" / "tailrace"


def test_what_is_in_the_cache_is_taken_without_a_network(cache: Path, unreachable: None) -> None:
    folder = jars.jar_folder(NOWHERE)
    folder.mkdir(parents=True)
    (folder / "no-such-thing-1.0.jar").touch()
    assert jars.resolve(NOWHERE) == [folder / "no-such-thing-1.0.jar"]


def test_a_jar_that_cannot_be_had_is_named_with_what_to_do(cache: Path, unreachable: None) -> None:
    with pytest.raises(jars.JarsUnavailable) as raised:
        jars.resolve(NOWHERE)
    assert "example.invalid#no-such-thing;1.0" in str(raised.value)
    assert "TAILRACE_IVY_SETTINGS" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_failure_leaves_nothing_that_looks_whole(cache: Path, unreachable: None) -> None:
    with pytest.raises(jars.JarsUnavailable):
        jars.resolve(NOWHERE)
    assert not jars.jar_folder(NOWHERE).exists()
    assert [path.name for path in (cache / "jars").iterdir() if path.is_dir()] == []


def test_another_version_is_another_folder() -> None:
    newer = JarSet("nowhere", (Coordinate("example.invalid", "no-such-thing", "1.1"),), transitive=False)
    assert jars.jar_folder(newer) != jars.jar_folder(NOWHERE)


def test_the_connector_is_that_of_the_spark_that_is_installed() -> None:
    from importlib.metadata import version

    assert version("pyspark") == versions.SPARK_VERSION


@pytest.mark.integration
def test_sparks_kafka_source_is_exactly_its_own_jars() -> None:
    assert {path.name for path in jars.spark_jars()} == {
        f"{c.name}-{c.revision}.jar" for c in versions.SPARK_KAFKA_JARS.coordinates
    }


@pytest.mark.integration
def test_kafkas_classpath_holds_the_broker_and_what_it_needs() -> None:
    names = {path.name for path in jars.kafka_classpath()}
    assert f"kafka_{versions.SCALA_VERSION}-{versions.KAFKA_VERSION}.jar" in names
    assert f"kafka-clients-{versions.KAFKA_VERSION}.jar" in names
