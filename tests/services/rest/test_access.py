"""Who may do what: principals, roles, limits, and browsers with pages of other sites."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tailrace.services.configuration import Configuration, ConfigurationError
from tailrace.services.configuration.options.tenants import MAX_NAME_LENGTH
from tailrace.services.rest.application import Settings
from tailrace.services.rest.authenticator import Authenticator
from tailrace.services.rest.endpoint import Endpoint
from tailrace.services.rest.errors import Forbidden, TooManyRequests
from tailrace.services.rest.principal import Grant, Principal, Role
from tailrace.services.rest.rate_limiter import RateLimiter

from .test_application import FLINK, OWN, client

TOKENS = {role: f"the token of a {role.label}" for role in Role}
SUBMITTER_MAY = {
    ("PATCH", "/jobs/{jobid}"),
    ("POST", "/applications/{applicationid}/cancel"),
    ("POST", "/jobs/{jobid}/stop"),
    ("POST", "/jobs/{jobid}/savepoints"),
    ("POST", "/jobs/{jobid}/checkpoints"),
    ("POST", "/savepoint-disposal"),
    ("PUT", "/jobs/{jobid}/resource-requirements"),
    ("POST", "/jobs/{jobid}/rescale"),
    ("POST", "/jobs/{jobid}/pause"),
    ("POST", "/jobs/{jobid}/resume"),
    ("POST", "/jobs/{jobid}/restart"),
    ("PATCH", "/jobs/{jobid}/configuration"),
    ("PATCH", "/jobs/{jobid}/offsets"),
    ("GET", "/jobs/{jobid}/yarn-cancel"),
    ("POST", "/submissions"),
    ("POST", "/jars/upload"),
    ("DELETE", "/jars/{jarid}"),
    ("GET", "/jars/{jarid}/plan"),
    ("POST", "/jars/{jarid}/plan"),
    ("POST", "/jars/{jarid}/run"),
}
"""What a submitter may do besides reading. The plan of a program runs its code. What else changes
something needs an operator."""
ALL = [*(("/v1", each) for each in FLINK), *(("/api/v1", each) for each in OWN)]
"""(prefix, endpoint)"""


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def authenticator(directory: Path, principals: str, **options: str) -> Authenticator:
    file = directory / "principals"
    file.write_text(principals)
    return Authenticator(Configuration({"rest.principals-file": str(file), **options}))


@pytest.fixture
def everyone(tmp_path: Path) -> Authenticator:
    return authenticator(
        tmp_path, "".join(f"{role.label} {role.label} sha256:{sha256(TOKENS[role])}\n" for role in Role)
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def expected_role(endpoint: Endpoint) -> Role:
    if (endpoint.method, endpoint.path) in SUBMITTER_MAY:
        return Role.SUBMITTER
    return Role.READER if endpoint.method == "GET" else Role.OPERATOR


@pytest.mark.parametrize("role", Role)
def test_every_endpoint_answers_roles_that_may_ask(role: Role, everyone: Authenticator) -> None:
    with client(Settings(everyone)) as rest:
        for prefix, endpoint in ALL:
            if endpoint.stream is not None and role >= expected_role(endpoint):
                # It has no end.
                continue
            path = prefix + re.sub(r"\{\w+\}", "0" * 32, endpoint.path)
            answer = rest.request(endpoint.method, path, headers=bearer(TOKENS[role]))
            is_allowed = role >= expected_role(endpoint)
            assert (answer.status_code == 403) is not is_allowed, f"{endpoint.method} {path}"
            assert answer.status_code != 401
            if not is_allowed:
                (message,) = answer.json()["errors"]
                assert f"needs the role {expected_role(endpoint).label}" in message


def test_every_endpoint_needs_principal(everyone: Authenticator) -> None:
    with client(Settings(everyone)) as rest:
        for prefix, endpoint in ALL:
            path = prefix + re.sub(r"\{\w+\}", "0" * 32, endpoint.path)
            assert rest.request(endpoint.method, path).status_code == 401, path
        assert rest.get("/api/v1/openapi.json").status_code == 401


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        (None, 'Bearer realm="tailrace"'),
        (TOKENS[Role.READER], 'Bearer realm="tailrace"'),
        ("Basic cmVhZGVyOg==", 'Bearer realm="tailrace"'),
        ("Bearer ", 'Bearer realm="tailrace"'),
        ("Bearer wrong", 'Bearer realm="tailrace", error="invalid_token"'),
        ("Bearer eyJhbGciOiJub25lIn0.e30.", 'Bearer realm="tailrace", error="invalid_token"'),
        (f"Bearer {sha256(TOKENS[Role.READER])}", 'Bearer realm="tailrace", error="invalid_token"'),
        ("Bearer \xff\xfe", 'Bearer realm="tailrace", error="invalid_token"'),
    ],
)
def test_request_without_valid_token_is_challenged(
    header: str | None, challenge: str, everyone: Authenticator
) -> None:
    with client(Settings(everyone)) as rest:
        headers = {} if header is None else {"Authorization": header.encode("latin-1")}
        answer = rest.get("/overview", headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, challenge)
        (message,) = answer.json()["errors"]
        assert TOKENS[Role.READER] not in message


def test_token_file_is_operator(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef\n")
    found = Authenticator(Configuration({"rest.token-file": str(tmp_path / "token")}))
    with client(Settings(found)) as rest:
        assert rest.post("/jobs", headers=bearer("0123456789abcdef")).status_code == 501
        assert rest.get("/overview", headers=bearer("0123456789abcdee")).status_code == 401


def test_changed_principals_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.infra.file_versions._INTERVAL_S", 0.0)
    found = authenticator(tmp_path, f"ci reader sha256:{sha256('first')}\n")

    def status(rest: TestClient, token: str) -> int:
        return rest.get("/overview", headers=bearer(token)).status_code

    def replace(content: str) -> None:
        (tmp_path / "new").write_text(content)
        os.replace(tmp_path / "new", tmp_path / "principals")

    with client(Settings(found)) as rest:
        assert (status(rest, "first"), status(rest, "second")) == (200, 401)
        replace("ci reader sha256:half of a li")
        assert (status(rest, "first"), status(rest, "second")) == (200, 401)
        replace(f"ci reader sha256:{sha256('second')}\n")
        assert (status(rest, "first"), status(rest, "second")) == (401, 200)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ci", "a line has a name, a role"),
        ("ci reader hunter2hunter2hunter2", "a line has a name, a role"),
        ("ci reader sha256:hunter2hunter2hunter2", "64 lower case hexadecimal digits"),
        (f"ci writer sha256:{'0' * 64}", "'writer' is not reader, submitter or operator"),
        (f"ci submitter@A_B sha256:{'0' * 64}", "'submitter@A_B' is not"),
        (f"ci submitter@ sha256:{'0' * 64}", "'submitter@' is not"),
        (f"ci operator@payments sha256:{'0' * 64}", "submitter@payments is of one"),
        (f"{'c' * 129} reader sha256:{'0' * 64}", "128 characters"),
        (
            f"ci reader sha256:{'0' * 64}\nx reader sha256:{'0' * 64}",
            "line 2 of .*: ci has this token already",
        ),
        ("\udcff reader certificate:CN=a", "can't be read"),
    ],
)
def test_malformed_principals_file_is_refused_in_one_line(line: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "principals"
    file.write_bytes(line.encode(errors="surrogateescape"))
    with pytest.raises(ConfigurationError, match=reason) as error:
        Authenticator(Configuration({"rest.principals-file": str(file)}))
    assert "\n" not in str(error.value)
    assert "hunter2" not in str(error.value)


GRANTS = st.builds(
    lambda role, tenant: Grant(role, "" if role is Role.OPERATOR else tenant),
    st.sampled_from(Role),
    st.from_regex(rf"|[a-z0-9][a-z0-9-]{{0,{MAX_NAME_LENGTH - 1}}}", fullmatch=True),
)


@given(GRANTS)
def test_grant_reads_back(grant: Grant) -> None:
    assert Grant.parse(str(grant)) == grant


@given(GRANTS, st.sampled_from(["", "payments", "search"]))
def test_principal_controls_jobs_of_its_tenant(grant: Grant, tenant: str) -> None:
    """An operator controls all. Without a tenant, jobs without one."""
    try:
        Principal("ci", grant).check_job("a", tenant)
    except Forbidden:
        assert grant.role is not Role.OPERATOR
        assert grant.tenant != tenant
    else:
        assert grant.role is Role.OPERATOR or grant.tenant == tenant


@given(GRANTS)
def test_principal_deletes_savepoints_of_its_tenant_or_all(grant: Grant) -> None:
    """The leader knows the tenant of a savepoint, and compares it with that of the request. A request without a tenant
    may delete all."""
    try:
        Principal("ci", grant).check_disposal()
    except Forbidden:
        assert grant.role is not Role.OPERATOR
        assert not grant.tenant
    else:
        assert grant.role is Role.OPERATOR or grant.tenant


@given(
    st.integers(min_value=1, max_value=20),
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(min_value=0, max_value=2)), max_size=200),
)
def test_rate_limit_holds_in_every_interval(rate: int, requests: list[tuple[str, float]]) -> None:
    """A principal gets at most a full bucket and what flows into it, and always the time until its next request."""
    now = 0.0
    limiter = RateLimiter(rate, lambda: now)
    allowed: dict[str, list[float]] = {}
    for name, pause in requests:
        now += pause
        try:
            limiter.take(name)
        except TooManyRequests as error:
            wait = int(error.headers["Retry-After"])
            assert wait >= 1
            assert len(allowed[name]) >= rate
        else:
            allowed.setdefault(name, []).append(now)
    for times in allowed.values():
        for first, start in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= rate + (times[last] - start) * rate + 1e-6


def test_principal_above_its_limit_is_told_when_to_come_back(everyone: Authenticator) -> None:
    with client(Settings(everyone, max_requests_per_second=2)) as rest:
        answers = [rest.get("/config", headers=bearer(TOKENS[Role.READER])) for _ in range(200)]
        refused = [each for each in answers if each.status_code == 429]
        assert refused
        assert {each.headers["Retry-After"] for each in refused} == {"1"}
        assert rest.get("/config", headers=bearer(TOKENS[Role.OPERATOR])).status_code == 200


def test_every_response_has_security_headers(everyone: Authenticator) -> None:
    with client(Settings(everyone)) as rest:
        for path, token in (("/overview", TOKENS[Role.READER]), ("/overview", "wrong"), ("/nope", "wrong")):
            headers = rest.get(path, headers=bearer(token)).headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Content-Security-Policy"].startswith("default-src 'self'; frame-ancestors 'none'")
            assert "Access-Control-Allow-Origin" not in headers


STOP = f"/jobs/{'0' * 32}/stop"


@pytest.mark.parametrize(
    ("allowed", "origin", "reads", "writes"),
    [
        (None, "https://evil.example", None, 403),
        (None, "null", None, 403),
        (None, "http://[", None, 403),
        (None, "http://testserver", None, 202),
        ("https://good.example", "https://good.example", "https://good.example", 202),
        ("https://good.example", "https://evil.example", None, 403),
        ("*", "https://evil.example", "*", 403),
    ],
)
def test_page_of_other_origin_gets_what_is_allowed(
    allowed: str | None, origin: str, reads: str | None, writes: int
) -> None:
    with client(Settings(allowed_origin=allowed)) as rest:
        headers = {"Origin": origin}
        assert rest.get("/overview", headers=headers).headers.get("Access-Control-Allow-Origin") == reads
        assert rest.post(STOP, headers=headers).status_code == writes


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_image_of_other_site_changes_nothing(site: str) -> None:
    """A browser sends no Origin for it. Flink's old dashboards cancel jobs by a GET."""
    with client() as rest:
        for path in (f"/jobs/{'0' * 32}/yarn-cancel", STOP):
            send = rest.get if path.endswith("yarn-cancel") else rest.post
            assert send(path, headers={"Sec-Fetch-Site": site}).status_code == 403
            assert send(path, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 202


def test_browser_may_ask_first_whether_it_may_write() -> None:
    with client(Settings(allowed_origin="https://good.example")) as rest:
        asked = {
            "Origin": "https://good.example",
            "Access-Control-Request-Method": "PATCH",
            "Access-Control-Request-Headers": "Authorization",
        }
        assert rest.options(STOP, headers=asked).status_code == 200
        assert rest.options(STOP, headers={**asked, "Origin": "https://evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8081", 200),
        ("localhost:8081", 200),
        ("[::1]:8081", 200),
        ("rest.example", 200),
        ("evil.example:8081", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_server_without_authentication_is_not_asked_by_foreign_names(host: str, status: int) -> None:
    with client(Settings(checks_host=True, host="rest.example")) as rest:
        answer = rest.get("/overview", headers={"Host": host})
        assert answer.status_code == status
