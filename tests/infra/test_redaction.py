"""Secrets in text: hidden in every form in which people, libraries and JSON write them, and nothing else is."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.infra.redaction import has_password, has_user_information, is_secret, redacted
from tailrace.pipelines.api import FileSink, FileSource
from tailrace.pipelines.graph.errors import ProgramError
from tailrace.pipelines.graph.registry_credentials import read_credentials

SECRETS = st.from_regex(r"[A-Za-z0-9_.!$%^*+~-]{6,20}", fullmatch=True).map(lambda text: f"s3cr{text}")
KEYS = st.sampled_from(
    [
        "password",
        "sasl.password",
        "ssl.key.password",
        "secret",
        "client_secret",
        "API_KEY",
        "access-token",
        "basic.auth.user.info",
        "sasl.jaas.config",
    ]
)
FORMS = st.sampled_from(
    [
        "cannot open http://me:{secret}@host:8081/subjects: refused",
        "https://{secret}@host",
        "jdbc:postgresql://u:{secret}@db/x?y=1",
        "{key}={secret}",
        "  {key} = '{secret}', y=2",
        'Settings({key}="{secret}", host=1)',
        '{{"{key}": "{secret}", "host": "h"}}',
        "{{'{key}': '{secret}'}}",
        '{{\\"{key}\\": \\"{secret}\\"}}',
        "Authorization: Basic {secret}",
        "{{'Authorization': 'Bearer {secret}'}}",
    ]
)
WORDS = st.text(st.characters(codec="utf-8"), max_size=30)


@given(before=WORDS, form=FORMS, key=KEYS, secret=SECRETS, after=WORDS)
def test_a_secret_is_hidden_whatever_stands_around_it(
    before: str, form: str, key: str, secret: str, after: str
) -> None:
    assert secret not in redacted(f"{before} {form.format(key=key, secret=secret)} {after}")


@given(
    st.recursive(WORDS, lambda inner: st.lists(inner) | st.dictionaries(WORDS | KEYS, inner), max_leaves=10)
)
def test_json_stays_json_and_keeps_its_shape(value: object) -> None:
    assert _shape(json.loads(redacted(json.dumps(value)))) == _shape(value)


@given(WORDS)
def test_text_that_is_redacted_stays_as_it_is(text: str) -> None:
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8081/a@b",
        "there is no option 'sasl.password': the nearest is schema.registry.url",
        "unexpected token: x",
        "blob.secret-file=/run/secret",
        "schema.registry.basic-auth.credentials-file is /run/registry",
        "password == other.password",
        "mail me@example.org",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "part", ["a", "token", "http://", "password=", "token.", '"secret":', "x=", "://a:b"]
)
def test_long_text_is_redacted_in_linear_time(part: str) -> None:
    def cost(length: int) -> float:
        text = part * (length // len(part))
        begun = time.process_time()
        redacted(text)
        return time.process_time() - begun

    cost(1_000)
    # A quadratic search takes 2,500 times as long.
    assert cost(500_000) < 500 * max(cost(10_000), 0.001)


def test_keys_of_secrets_are_known_by_their_names() -> None:
    assert is_secret("sasl.password")
    assert is_secret("sasl.oauthbearer.client.secret")
    assert not is_secret("blob.secret-file")
    assert not is_secret("parallelism.default")
    assert has_user_information("http://u:p@h")
    assert has_user_information("http://u@h")
    assert not has_user_information("http://h/u@p")
    assert has_password("s3://key:secret@bucket/report")
    assert not has_password("hdfs://user@name:8020/report")


def test_a_file_with_a_password_in_its_url_is_refused_without_it() -> None:
    for make in (FileSource, FileSink):
        with pytest.raises(ProgramError, match="it holds a password") as refused:
            make("s3://key:hunter2@bucket/report")
        assert "hunter2" not in str(refused.value)


def test_credentials_for_one_registry_come_before_those_for_all(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("# for tests\n\nall:one two\nhttp://r:1/ own:p:w\n")
    assert read_credentials(str(file), "http://r:1") == "own:p:w"
    assert read_credentials(str(file), "http://r:2") == "all:one two"
    assert read_credentials(None, "http://r:1") is None


@pytest.mark.parametrize("line", ["secretword", "http://r secretword", ":secretword", "http://r"])
def test_a_line_that_holds_no_credentials_is_refused_without_them(tmp_path: Path, line: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"u:p\n{line}\n")
    with pytest.raises(ValueError, match=r"line 2 of .* is neither") as refused:
        read_credentials(str(file), "http://other")
    assert "secretword" not in str(refused.value)
    with pytest.raises(ValueError, match="cannot be read"):
        read_credentials(str(tmp_path / "none"), "http://r")


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {redacted(json.dumps(key)): _shape(each) for key, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, list) else type(value).__name__
