"""Redaction hides secrets in every form that users, libraries and JSON write, and nothing else."""

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
def test_redaction_hides_secret_in_any_context(
    before: str, form: str, key: str, secret: str, after: str
) -> None:
    assert secret not in redacted(f"{before} {form.format(key=key, secret=secret)} {after}")


@given(name=st.sampled_from(["text", "reason", "n.a-me"]), form=FORMS, key=KEYS, secret=SECRETS)
@pytest.mark.parametrize("outer", ['{{"{name}":{json}}}', "{name}={text}", "{name}='{text}'"])
def test_redaction_hides_secret_in_value_of_other_key(
    outer: str, name: str, form: str, key: str, secret: str
) -> None:
    text = form.format(key=key, secret=secret)
    assert secret not in redacted(outer.format(name=name, text=text, json=json.dumps(text)))


@given(
    st.recursive(WORDS, lambda inner: st.lists(inner) | st.dictionaries(WORDS | KEYS, inner), max_leaves=10)
)
def test_redaction_keeps_json_valid(value: object) -> None:
    assert _shape(json.loads(redacted(json.dumps(value)))) == _shape(value)


@given(WORDS)
def test_redaction_is_idempotent(text: str) -> None:
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
def test_redaction_keeps_text_without_secrets(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "part",
    ["a", "token", "http://", "password=", "token.", "x=password=", "x='", '"secret":', "x=", "://a:b"],
)
def test_redaction_takes_linear_time(part: str) -> None:
    def cost(length: int) -> float:
        text = part * (length // len(part))
        start = time.process_time()
        redacted(text)
        return time.process_time() - start

    cost(1_000)
    # A quadratic search takes 2,500 times as long.
    assert cost(500_000) < 500 * max(cost(10_000), 0.001)


def test_secret_keys_are_detected_by_name() -> None:
    assert is_secret("sasl.password")
    assert is_secret("sasl.oauthbearer.client.secret")
    assert not is_secret("blob.secret-file")
    assert not is_secret("parallelism.default")
    assert has_user_information("http://u:p@h")
    assert has_user_information("http://u@h")
    assert not has_user_information("http://h/u@p")
    assert has_password("s3://key:secret@bucket/report")
    assert not has_password("hdfs://user@name:8020/report")


def test_file_with_password_in_url_is_rejected_without_showing_it() -> None:
    for make in (FileSource, FileSink):
        with pytest.raises(ProgramError, match="it contains a password") as refused:
            make("s3://key:hunter2@bucket/report")
        assert "hunter2" not in str(refused.value)


def test_credentials_of_one_registry_precede_general_ones(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("# for tests\n\nall:one two\nhttp://r:1/ own:p:w\n")
    assert read_credentials(str(file), "http://r:1") == "own:p:w"
    assert read_credentials(str(file), "http://r:2") == "all:one two"
    assert read_credentials(None, "http://r:1") is None


@pytest.mark.parametrize("line", ["secretword", "http://r secretword", ":secretword", "http://r"])
def test_line_without_credentials_is_rejected_without_showing_it(tmp_path: Path, line: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"u:p\n{line}\n")
    with pytest.raises(ValueError, match=r"line 2 of .* is neither") as refused:
        read_credentials(str(file), "http://other")
    assert "secretword" not in str(refused.value)
    with pytest.raises(ValueError, match="cannot be read"):
        read_credentials(str(tmp_path / "none"), "http://r")


def _shape(value: object) -> object:
    if isinstance(value, dict):
        return {redacted(json.dumps(key)): _shape(item) for key, item in value.items()}
    return [_shape(element) for element in value] if isinstance(value, list) else type(value).__name__
