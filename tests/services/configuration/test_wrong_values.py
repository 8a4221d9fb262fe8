"""Any text for any option: it is a value, or it is refused in one line that says of what, and what is possible."""

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
    """Why the configuration is refused, if it is; on the screen it is one line."""
    try:
        Configuration(values)
    except ConfigurationError as error:
        said = str(error)
        assert said.isprintable()
        assert len(said) < 1_000
        return said
    return None


def check(option: ConfigOption[Any], text: str) -> None:
    said = refusal({option.key: text})
    try:
        value = option.read(text)
    except ValueError:
        assert said is not None
        assert said.startswith(f"{option.key} is ")
        assert "it may be" in said
        return
    assert option.read(option.write(value)) == value
    # What is possible by itself may not go with the defaults of others.
    assert said is None or option.key in said
    assert "\0" not in option.write(value)


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: str(option.key))
def test_what_is_wrong_for_an_option_is_refused(option: ConfigOption[Any]) -> None:
    for text in WRONG:
        check(option, text)


@given(option=st.sampled_from(options.OPTIONS), text=TEXTS)
def test_any_text_for_any_option_is_a_value_or_refused(option: ConfigOption[Any], text: str) -> None:
    check(option, text)


@given(option=st.sampled_from(options.OPTIONS), place=st.integers(0), letter=st.sampled_from("xyz"))
def test_an_option_with_a_wrong_letter_is_taken_for_the_right_one(
    option: ConfigOption[Any], place: int, letter: str
) -> None:
    place %= len(option.key)
    wrong = option.key[:place] + letter + option.key[place + 1 :]
    if wrong not in options.BY_KEY:
        said = refusal({wrong: "1"})
        assert said is not None
        assert said.startswith(f"there is no option {wrong!r}: the nearest is ")


@given(key=st.text(max_size=300))
def test_any_key_is_an_option_or_refused(key: str) -> None:
    if key not in options.BY_KEY:
        assert (refusal({key: "1"}) or "").startswith("there is no option ")
