"""The log files that a process serves: only its own and those beside them, in whole lines without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.services.diagnostics import logs
from tailrace.services.diagnostics.client import (
    DiagnosticsClient,
    DiagnosticsNotFound,
    DiagnosticsUnavailable,
    ServerAddress,
)
from tailrace.services.diagnostics.logs import MOST_BYTES, LogFiles, read_part
from tailrace.services.diagnostics.server import DiagnosticsServer, UnknownPath

SECRET = "hunter2hunter2"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TextIO]:
    folder = tmp_path / "home" / "log"
    folder.mkdir(parents=True)
    (tmp_path / "home" / "outside").write_text("not to be read\n")
    (folder / "other.log").write_text(f"other\npassword={SECRET}\n")
    (folder / "folder.log").mkdir()
    (folder / "link.log").symlink_to(tmp_path / "home" / "outside")
    os.mkfifo(folder / "pipe.log")
    with (folder / "own.log").open("w") as stream:
        stream.write("first\nsecond\n")
        stream.flush()
        yield stream


def files_of(own: TextIO) -> LogFiles:
    return LogFiles(Path(own.name).parent, {"log": own, "stdout": own})


def test_list_has_plain_files_of_directory(own: TextIO) -> None:
    assert sorted(each.name for each in files_of(own).list()) == ["other.log", "own.log"]
    assert {each.name: each.size for each in files_of(own).list()}["own.log"] == len("first\nsecond\n")


def test_process_that_logs_elsewhere_serves_its_own_file_only(own: TextIO, tmp_path: Path) -> None:
    with (tmp_path / "elsewhere.log").open("w") as stream:
        files = LogFiles(Path(own.name).parent, {"log": stream})
        assert [each.name for each in files.list()] == ["elsewhere.log"]


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "..",
        ".",
        "",
        "/etc/passwd",
        "link.log",
        "pipe.log",
        "folder.log",
        "own.log/",
        "own.log/../../outside",
        "..%2foutside",
        "own.log\0",
        "own.log\r\nX: y",
        "ö" * 5_000,
    ],
)
def test_other_names_are_not_found(own: TextIO, name: str) -> None:
    with pytest.raises(UnknownPath):
        files_of(own).read(name, None)
    if name and len(name) < 1_000:
        with DiagnosticsServer(files_of(own).paths(), host="127.0.0.1") as server:
            for path in (quote(name, safe=""), quote(quote(name, safe=""), safe="")):
                with pytest.raises(DiagnosticsNotFound):
                    DiagnosticsClient().get(ServerAddress(server.address, ""), f"/logs/{path}")


def test_secrets_are_redacted_from_any_offset(own: TextIO) -> None:
    files = files_of(own)
    for offset in (None, *range(-40, 41)):
        part = files.read("other.log", offset)
        assert not any(SECRET[index:] in part.text for index in range(len(SECRET) - 2) if part.text)
    assert files.read("other.log", None).text == "other\npassword=***\n"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=8)), st.data())
def test_followed_lines_are_those_of_the_file(tmp_path: Path, lines: list[str], data: st.DataObject) -> None:
    """However the file grows, who follows it gets each line once, and the parts are the file."""
    content = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)))))
    path, offset, found = tmp_path / "growing.log", 0, b""
    for until in [*cuts, len(content)]:
        path.write_bytes(content[:until])
        part = read_part(path, offset)
        assert part.offset == offset
        assert not part.text or part.text.endswith("\n")
        found += content[part.offset : part.following]
        offset = part.following
    assert found == content
    begin = data.draw(st.integers(0, len(content)))
    part = read_part(path, begin)
    assert part.following == len(content)
    assert part.offset == (begin if begin == 0 else content.find(b"\n", begin - 1) + 1 or len(content))


def test_answer_is_bounded_and_has_the_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 10)
    path = tmp_path / "large.log"
    path.write_text("".join(f"{number:03}\n" for number in range(100)))
    assert read_part(path, None).text == "098\n099\n"
    assert read_part(path, 0).text == "000\n001\n"
    assert read_part(path, -4).text == "099\n"
    assert read_part(path, 10_000) == logs.LogPart("", 400, 400)
    path.write_text("x" * 25 + "\nshort")
    first = read_part(path, 0)
    assert (first.text, first.following) == ("x" * 10, 10)
    assert read_part(path, 10) == logs.LogPart("", 10, 20)
    assert read_part(path, 20) == logs.LogPart("", 26, 26)
    assert read_part(path, None).text == "short"
    assert MOST_BYTES > 10


def test_offset_that_is_no_number_is_refused(own: TextIO) -> None:
    with DiagnosticsServer(files_of(own).paths(), host="127.0.0.1") as server:
        client = DiagnosticsClient()
        assert client.get(ServerAddress(server.address, ""), "/log?offset=6").body == b"second\n"
        assert client.get(ServerAddress(server.address, ""), "/stdout").headers["tailrace-log-next"] == "13"
        for offset in ("x", "1e3", "9" * 30, "--1"):
            with pytest.raises(DiagnosticsUnavailable, match="400"):
                client.get(ServerAddress(server.address, ""), f"/log?offset={offset}")


def test_stream_without_file_is_not_found(own: TextIO) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream, os.fdopen(reader):
        files = LogFiles(Path(own.name).parent, {"log": stream, "stdout": stream})
        assert files.list() == []
        with DiagnosticsServer(files.paths(), host="127.0.0.1") as server, pytest.raises(DiagnosticsNotFound):
            DiagnosticsClient().get(ServerAddress(server.address, ""), "/log")
