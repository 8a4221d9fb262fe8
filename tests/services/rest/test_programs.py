"""Uploaded programs: their store, their upload by HTTP, and their plans; the plans come from real processes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tailrace.services.rest.application import Settings, create_application
from tailrace.services.rest.commands import program_commands
from tailrace.services.rest.endpoint import Parameters
from tailrace.services.rest.errors import BadRequest, Conflict, NotFound, Unavailable
from tailrace.services.rest.moment import Moment
from tailrace.services.rest.principal import Grant, Principal, Role, acting_as
from tailrace.services.rest.program_requests import PlanBody, RunBody, read_request
from tailrace.services.rest.program_store import ProgramStore
from tailrace.services.rest.programs import Programs
from tailrace.services.rest.uploads import UploadedFile

LIMIT = 1 << 20
SCRIPT = b"""
import sys
from tailrace import StreamExecutionEnvironment


def twice(number: int) -> int:
    return 2 * number


def main(*names: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).map(twice).print()
    env.execute(" ".join(names) or "none")


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def zipped(**modules: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in modules.items():
            archive.writestr(f"{name}.py", text)
    return content.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> ProgramStore:
    return ProgramStore(str(tmp_path / "uploads"))


@contextmanager
def no_moment(_: str | None) -> Iterator[Moment]:
    yield pytest.fail("these requests read no state")


@pytest.fixture
def rest(store: ProgramStore) -> Iterator[TestClient]:
    # A plan needs neither the cluster nor its log.
    programs = Programs(store, cast("Any", None), cast("Any", None), "http://server:8081")
    application = create_application(
        no_moment, program_commands(programs), settings=Settings(max_content_length=LIMIT)
    )
    with TestClient(application, raise_server_exceptions=False) as client:
        yield client


def upload(rest: TestClient, name: str, content: bytes) -> str:
    answer = rest.post("/jars/upload", files={"jarfile": (name, content)})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "success"
    return str(answer.json()["filename"].rpartition("/")[2])


def put(store: ProgramStore, name: str, content: bytes, scratch: Path) -> str:
    scratch.mkdir(exist_ok=True)
    return store.put(name, io.BytesIO(content), scratch)


def fetched(store: ProgramStore, program_id: str, scratch: Path) -> bytes:
    scratch.mkdir(exist_ok=True)
    return store.fetch(program_id, scratch).read_bytes()


def test_same_file_twice_is_one_program(store: ProgramStore, tmp_path: Path) -> None:
    first = put(store, "a.py", SCRIPT, tmp_path / "1")
    assert put(store, "a.py", SCRIPT, tmp_path / "2") == first
    other = put(store, "b.py", SCRIPT, tmp_path / "3")
    assert {each.program_id for each in store.programs()} == {first, other}
    store.delete(first)
    assert [(each.program_id, each.name) for each in store.programs()] == [(other, "b.py")]
    assert fetched(store, other, tmp_path / "4") == SCRIPT
    for gone in (first, "nope", f"{'0' * 64}_../a.py", ""):
        with pytest.raises(NotFound):
            store.fetch(gone, tmp_path)
        with pytest.raises(NotFound):
            store.delete(gone)


def test_damaged_program_is_not_run(store: ProgramStore, tmp_path: Path) -> None:
    program_id = put(store, "a.py", SCRIPT, tmp_path / "1")
    (blob,) = (tmp_path / "uploads").rglob("blob_p-*")
    blob.write_bytes(SCRIPT + b"import os\n")
    with pytest.raises(Unavailable):
        fetched(store, program_id, tmp_path / "2")


@given(name=st.text(max_size=200) | st.from_regex(r"[./\\a-z]{1,20}\.(py|zip|whl)", fullmatch=True))
def test_name_stays_below_directory_or_is_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("names")
    store = ProgramStore(str(base / "uploads"))
    try:
        put(store, name, SCRIPT if name.endswith(".py") else zipped(a=SCRIPT), base / "scratch")
    except BadRequest as error:
        assert "\n" not in error.message
    assert {path.name for path in base.iterdir()} <= {"uploads", "scratch"}
    assert all(path.is_file() for path in (base / "scratch").iterdir())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jar", zipped(a=SCRIPT)),
        ("a.zip", b"no archive"),
        ("a.py", b""),
        ("a\x00.py", SCRIPT),
        (".py", SCRIPT),
    ],
)
def test_what_is_no_program_is_refused(rest: TestClient, name: str, content: bytes) -> None:
    answer = rest.post("/jars/upload", files={"jarfile": (name, content)})
    assert answer.status_code == 400
    assert rest.get("/jars").json() == {"address": "http://server:8081", "files": []}


def test_malformed_upload_is_refused(rest: TestClient) -> None:
    two = {"one": ("a.py", SCRIPT), "two": ("b.py", SCRIPT)}
    multipart = {"Content-Type": "multipart/form-data; boundary=x"}
    for answer in (
        rest.post("/jars/upload"),
        rest.post("/jars/upload", json={}),
        rest.post("/jars/upload", files=two),
        rest.post("/jars/upload", content=b"--x\r\n\r\n", headers=multipart),
        rest.post("/jars/upload", content=b"--x--\r\n", headers=multipart),
        rest.post("/jars/upload", content=b"", headers={"Content-Type": "multipart/form-data"}),
    ):
        assert answer.status_code == 400, answer.text
        (message,) = answer.json()["errors"]
        assert "\n" not in message


def test_upload_is_read_up_to_its_limit(rest: TestClient) -> None:
    assert rest.post("/jars/upload", files={"jarfile": ("a.py", b"#" * LIMIT)}).status_code == 413
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="jarfile"; filename="a.py"\r\n\r\n'
        for _ in range(100):
            sent += 1
            yield b"#" * (LIMIT // 2)

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert rest.post("/jars/upload", content=endless(), headers=headers).status_code == 413
    assert upload(rest, "a.py", b"#" * (LIMIT - 1_000))


def test_plan_of_script_and_of_function_in_archive(rest: TestClient) -> None:
    script, archive = (
        upload(rest, "words.py", SCRIPT),
        upload(rest, "words-1.0-py3-none-any.whl", zipped(shop=SCRIPT)),
    )
    requests = (
        rest.get(f"/jars/{script}/plan", params={"program-args": "'two words'", "parallelism": "2"}),
        rest.post(f"/jars/{script}/plan", json={"programArgsList": ["two words"], "parallelism": "2"}),
        rest.post(
            f"/jars/{script}/plan",
            json={"entryClass": "words:main", "programArgs": "two words", "parallelism": 2},
        ),
        rest.post(
            f"/jars/{archive}/plan",
            json={"entryClass": "shop:main", "programArgs": "two words", "parallelism": 2},
        ),
    )
    plans = [answer.json()["plan"] for answer in requests]
    assert {plan["name"] for plan in plans} == {"two words"}
    assert len({repr(plan["nodes"]) for plan in plans}) == 1
    assert max(node["parallelism"] for node in plans[0]["nodes"]) == 2


@pytest.mark.parametrize(
    ("content", "body", "reason"),
    [
        (b"import nothing_of_that_name", {}, "nothing_of_that_name"),
        (b"raise ValueError('no price')", {}, "no price"),
        (b"print(1)", {}, "without executing a job"),
        (SCRIPT, {"entryClass": "words"}, "module:function"),
        (SCRIPT, {"entryClass": "words:nope"}, "nope"),
        (SCRIPT, {"flinkConfiguration": {"no.such.option": "1"}}, "no.such.option"),
        (b"import os; os.kill(os.getpid(), 9)", {}, "SIGKILL"),
    ],
)
def test_error_of_program_is_one_line(
    rest: TestClient, content: bytes, body: dict[str, object], reason: str
) -> None:
    answer = rest.post(f"/jars/{upload(rest, 'words.py', content)}/plan", json=body)
    assert answer.status_code == 400
    (message,) = answer.json()["errors"]
    assert reason in message
    assert "\n" not in message
    assert "tailrace-program-" not in message


def test_archive_without_function_is_refused(rest: TestClient) -> None:
    answer = rest.post(f"/jars/{upload(rest, 'shop.zip', zipped(shop=SCRIPT))}/plan")
    assert answer.status_code == 400
    assert "entryClass" in answer.text


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [
        ({}, RunBody(), (None, (), None, None, False)),
        ({"entry-class": "q:f", "parallelism": 3}, RunBody(), ("q:f", (), 3, None, False)),
        (
            {"entry-class": "q:f", "parallelism": 3},
            RunBody("b:f", parallelism="4"),
            ("b:f", (), 4, None, False),
        ),
        ({"program-args": "--a 'b c'"}, RunBody(), (None, ("--a", "b c"), None, None, False)),
        ({"programArg": "a,b"}, RunBody(program_args="x y"), (None, ("x", "y"), None, None, False)),
        ({"programArg": "a,b"}, RunBody(), (None, ("a", "b"), None, None, False)),
        (
            {},
            RunBody(parallelism="", savepoint_path="/sp", allow_non_restored_state=True),
            (None, (), None, "/sp", True),
        ),
    ],
)
def test_body_comes_before_query(query: Parameters, body: PlanBody, expected: tuple[object, ...]) -> None:
    found = read_request(query, body)
    assert expected == (
        found.entry_point,
        found.arguments,
        found.parallelism,
        found.savepoint_path,
        found.allow_non_restored_state,
    )


TENANTS = ("payments", "search", "")


def act(name: str) -> AbstractContextManager[None]:
    """Acts as an operator, or as a submitter of a tenant; empty: of none."""
    role = Role.OPERATOR if name == "operator" else Role.SUBMITTER
    return acting_as(Principal(name, Grant(role, "" if name == "operator" else name)))


def test_tenant_sees_plans_and_deletes_only_its_own_programs(store: ProgramStore) -> None:
    programs = Programs(store, cast("Any", None), cast("Any", None), "http://server:8081")

    def list_ids() -> set[str]:
        return {each.id for each in programs.programs({}, None, None).body.files}

    ids: dict[str, str] = {}
    for tenant in TENANTS:
        with act(tenant):
            file = UploadedFile("a.py", io.BytesIO(SCRIPT))
            ids[tenant] = programs.upload({}, file, None).body.filename.rpartition("/")[2]
    assert len(set(ids.values())) == len(TENANTS)
    for tenant in TENANTS:
        with act(tenant):
            assert list_ids() == {ids[tenant]}
            for other in set(TENANTS) - {tenant}:
                for command in (programs.delete, programs.plan):
                    with pytest.raises(NotFound, match="There is no program"):
                        command({"jarid": ids[other]}, None, None)
    with act("operator"):
        assert list_ids() == set(ids.values())
        programs.delete({"jarid": ids["search"]}, None, None)
        assert list_ids() == {ids["payments"], ids[""]}


def test_programs_of_tenant_are_bounded(tmp_path: Path) -> None:
    few = ProgramStore(str(tmp_path / "few"), max_programs=2)
    small = ProgramStore(str(tmp_path / "small"), max_bytes=len(SCRIPT) + 10)
    for store, most, option in ((few, 2, "web.upload.max-programs"), (small, 1, "web.upload.max-size")):
        for tenant in TENANTS:
            for number in range(most):
                store.put(f"{number}.py", io.BytesIO(SCRIPT), tmp_path, tenant)
            with pytest.raises(Conflict, match=option):
                store.put("last.py", io.BytesIO(SCRIPT), tmp_path, tenant)
            # The same file is the same program.
            first = store.put("0.py", io.BytesIO(SCRIPT), tmp_path, tenant)
            store.delete(first)
            store.put("last.py", io.BytesIO(SCRIPT), tmp_path, tenant)
