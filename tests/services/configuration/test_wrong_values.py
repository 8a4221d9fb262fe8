"""Any text for any option is a value, or is rejected in one line that names the option and the valid values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.infra.config.options import ConfigOption
from tailrace.services.configuration import Configuration, ConfigurationError, options

WRONG = (
    "",
    " ",
    "-1",
    "nan",
    "1e400",
    "9" * 30,
    "1 parsec",
    "a\nb",
    "\0",
    "\x1b[2J",
    "\u202e",
    "/\0",
    "none;",
    "a" * 5_000,
)
TEXTS = st.sampled_from(WRONG) | st.text(max_size=30)


def refusal(values: dict[str, str]) -> str | None:
    """Returns why the configuration is rejected, in one line; empty if it is accepted."""
    try:
        Configuration(values)
    except ConfigurationError as error:
        output = str(error)
        assert output.isprintable()
        assert len(output) < 1_000
        return output
    return None


def check(option: ConfigOption[Any], text: str) -> None:
    output = refusal({option.key: text})
    try:
        value = option.read(text)
    except ValueError:
        assert output is not None
        assert output.startswith(f"{option.key} is ")
        assert "it may be" in output
        return
    assert option.read(option.write(value)) == value
    # What is possible by itself may not go with the defaults of others.
    assert output is None or option.key in output
    assert "\0" not in option.write(value)


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: str(option.key))
def test_invalid_value_is_rejected(option: ConfigOption[Any]) -> None:
    for text in WRONG:
        check(option, text)


@given(option=st.sampled_from(options.OPTIONS), text=TEXTS)
def test_any_text_for_any_option_is_value_or_rejected(option: ConfigOption[Any], text: str) -> None:
    check(option, text)


@given(option=st.sampled_from(options.OPTIONS), place=st.integers(0), letter=st.sampled_from("xyz"))
def test_misspelled_option_gets_correct_one_as_hint(
    option: ConfigOption[Any], place: int, letter: str
) -> None:
    place %= len(option.key)
    wrong = option.key[:place] + letter + option.key[place + 1 :]
    if wrong not in options.BY_KEY:
        output = refusal({wrong: "1"})
        assert output is not None
        assert output.startswith(f"there is no option {wrong!r}: the nearest is ")


@given(key=st.text(max_size=300))
def test_any_key_is_option_or_rejected(key: str) -> None:
    if key not in options.BY_KEY:
        assert (refusal({key: "1"}) or "").startswith("there is no option ")
