"""The files of the web page over HTTP: without a cluster, a browser or a token."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import NoReturn

from starlette.testclient import TestClient

from tailrace.services.configuration import Configuration
from tailrace.services.rest.application import Settings, create_application
from tailrace.services.rest.authenticator import Authenticator
from tailrace.services.rest.page import create_routes

MAX_BYTES = 500_000


@contextmanager
def read(at: str | None, _: object) -> Iterator[NoReturn]:
    raise AssertionError("a file of the page is not read from the log")
    yield


AUTHENTICATOR = Authenticator(Configuration())
"""It knows nobody."""


def client() -> TestClient:
    """Returns a client of a server that wants a token for its data."""
    return TestClient(create_application(read, [], [], Settings(AUTHENTICATOR), create_routes()))


def built_files() -> dict[str, bytes]:
    """Returns path -> content of all files of the page."""
    root = resources.files("tailrace") / "services" / "web" / "static"
    found = {"/": (root / "index.html").read_bytes()}
    return found | {f"/assets/{file.name}": file.read_bytes() for file in (root / "assets").iterdir()}


def test_page_is_its_built_files_compressed_or_not() -> None:
    with client() as browser:
        for path, content in built_files().items():
            for encoding in ("identity", "gzip, br"):
                answer = browser.get(path, headers={"Accept-Encoding": encoding})
                assert answer.status_code == 200, path
                assert answer.content == content
                assert answer.headers.get("Content-Encoding") == (None if encoding == "identity" else "gzip")
    assert browser.get("/").headers["Content-Type"].startswith("text/html")


def test_page_names_only_files_that_are_there() -> None:
    files = built_files()
    named = re.findall(r'(?:src|href)="\.([^"]+)"', files["/"].decode())
    assert {path.rpartition(".")[2] for path in named} == {"js", "css", "svg"}
    assert set(named) == set(files) - {"/"}


def test_page_is_small() -> None:
    files = built_files()
    assert sum(map(len, files.values())) < MAX_BYTES
    assert sum(len(gzip.compress(content)) for content in files.values()) < MAX_BYTES // 3


def test_policy_allows_only_own_files() -> None:
    with client() as browser:
        for path in built_files():
            headers = browser.get(path).headers
            policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
            assert policy["default-src"] == policy["script-src"] == policy["style-src"] == "'self'"
            assert set(policy.values()) == {"'self'", "'none'"}
            assert headers["X-Content-Type-Options"] == "nosniff"


def test_assets_are_kept_and_the_page_is_checked_at_each_visit() -> None:
    with client() as browser:
        for path in built_files():
            answer = browser.get(path)
            assert ("immutable" in answer.headers["Cache-Control"]) == (path != "/")
            again = browser.get(path, headers={"If-None-Match": answer.headers["ETag"]})
            assert (again.status_code, again.content) == (304, b"")


def test_other_paths_are_not_found() -> None:
    with client() as browser:
        for path in ("/assets/", "/assets/none.js", "/assets/..%2Findex.html", "/index.html", "/assets/%00"):
            assert browser.get(path).status_code == 404, path


def test_data_need_the_token_and_the_page_does_not() -> None:
    with client() as browser:
        assert browser.get("/").status_code == 200
        assert browser.get("/api/v1/openapi.json").status_code == 401
