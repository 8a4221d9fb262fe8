"""What keys do to what is looked at."""

from __future__ import annotations

import pytest

from tailrace.services.cli.top.ui_state import (
    KeyResult,
    Page,
    Panel,
    PlayerCommand,
    Rows,
    UiPrompt,
    UiState,
    handle_key,
    jobs_of,
    log_of,
)
from tailrace.services.cli.top.view import View

from ...snapshots.simulated_logs import LONG
from .recorded_views import read_views

ROWS = Rows(jobs=2, log=5, executors=1, tasks=2)


@pytest.fixture(scope="module")
def view() -> View:
    found = max(read_views(LONG).values(), key=lambda view: (len(view.jobs), len(view.log)))
    assert len(found.jobs) > 3
    return found


def after(look: UiState, view: View, *keys: str) -> UiState:
    for key in keys:
        look = pressed(look, view, key).look
    return look


def pressed(look: UiState, view: View, key: str) -> KeyResult:
    return handle_key(look, key, key if len(key) == 1 else " " if key == "space" else None, view, ROWS)


@pytest.mark.parametrize(
    ("key", "ask"),
    [
        ("q", PlayerCommand.QUIT),
        ("space", PlayerCommand.PAUSE),
        ("+", PlayerCommand.FASTER),
        ("-", PlayerCommand.SLOWER),
        ("right", PlayerCommand.STEP),
        ("left", PlayerCommand.BACK),
        ("l", PlayerCommand.LIVE),
    ],
)
def test_keys_ask_the_player(view: View, key: str, ask: PlayerCommand) -> None:
    assert pressed(UiState(), view, key) == KeyResult(UiState(), ask)


def test_a_place_is_typed_and_gone_to(view: View) -> None:
    typed = after(UiState(), view, "g", "1", "2", "x", "backspace", "0")
    assert (typed.question, typed.typed) == (UiPrompt.PLACE, "120")
    assert pressed(typed, view, "enter") == KeyResult(UiState(), PlayerCommand.GO, "120")
    assert pressed(typed, view, "escape") == KeyResult(UiState())
    assert pressed(after(UiState(), view, "g"), view, "enter").ask is None


def test_q_and_space_are_letters_where_something_is_typed(view: View) -> None:
    typed = after(UiState(), view, "/", "q", "space", "l")
    assert typed.typed == "q l"


def test_a_filter_leaves_what_has_it_in_it_in_any_case(view: View) -> None:
    look = after(UiState(), view, "/", *"windowword", "enter")
    assert look.pattern == "windowword"
    assert {each.job.name for each in jobs_of(view, look.pattern)} == {"WindowWordCount"}
    assert all("windowword" in f"{each.text}{each.type}".casefold() for each in log_of(view, look))
    assert after(look, view, "escape") == UiState()


def test_the_cursor_stays_on_its_job_when_others_come_and_go(view: View) -> None:
    look = after(UiState(), view, "down", "down")
    job = view.jobs[2].job.job_id
    assert look.job == job
    fewer = View("sim", jobs=view.jobs[2:])
    assert after(look, fewer, "down").job == view.jobs[3].job.job_id
    assert after(look, view, "end").job == view.jobs[-1].job.job_id
    assert after(look, view, "home", "up").job == view.jobs[0].job.job_id
    assert after(look, view, "pageup").job == view.jobs[0].job.job_id


def test_a_job_is_opened_and_left(view: View) -> None:
    look = after(UiState(), view, "down", "enter")
    assert (look.page, look.job) == (Page.JOB, view.jobs[1].job.job_id)
    assert after(look, view, "escape").page is Page.MAIN
    assert after(UiState(), View("sim"), "enter") == UiState()


def test_the_log_scrolls_and_what_is_seen_stays_where_it_is(view: View) -> None:
    look = after(UiState(panel=Panel.LOG), view, "up", "up")
    assert look.log_end == view.log[-3].offset
    assert after(look, view, "down", "down").log_end is None
    assert after(look, view, "home").log_end == view.log[ROWS.log - 1].offset
    assert after(look, view, "pageup").log_end == view.log[-3 - ROWS.log].offset
    assert after(look, view, "end").log_end is None


def test_tab_goes_through_the_panels(view: View) -> None:
    assert after(UiState(), view, "tab").panel is Panel.LOG
    assert after(UiState(), view, "tab", "tab", "tab") == UiState()
    assert after(UiState(), view, "shift+tab").panel is Panel.TASKEXECUTORS


def test_no_key_breaks_anything(view: View) -> None:
    for page in Page:
        for panel in Panel:
            for key in (
                "up",
                "down",
                "pageup",
                "pagedown",
                "home",
                "end",
                "f5",
                "é",
                "enter",
                "backspace",
                "ctrl+u",
            ):
                for each in (view, View("sim")):
                    pressed(UiState(page=page, panel=panel, job="gone"), each, key)
