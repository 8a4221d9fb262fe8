"""The screen fits every terminal, steers none, and says what matters on a small one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from tailrace.services.cli.top.canvas import ASCII, UNICODE, Canvas, Column, Glyphs, glyphs_of, widths
from tailrace.services.cli.top.event_player import PlayerMode, PlayerStatus
from tailrace.services.cli.top.live_processes import LiveProcesses
from tailrace.services.cli.top.screen import draw
from tailrace.services.cli.top.ui_state import Page, Panel, UiPrompt, UiState, open_job
from tailrace.services.cli.top.view import LogLine, MasterView, TaskExecutorView, View

from ...snapshots.simulated_logs import LONG
from .recorded_views import create_view_builder, read_views

HOSTILE = "evil\x1b[2J\nname \u202e 漢字 é"


def text(
    view: View,
    look: UiState | None = None,
    status: PlayerStatus | None = None,
    presence: LiveProcesses | None = None,
    size: tuple[int, int] = (80, 24),
    glyphs: Glyphs = UNICODE,
) -> list[str]:
    status = status or PlayerStatus(mode=PlayerMode.PAUSED, now=view.time, end=view.offset + 1)
    drawn = draw(view, look or UiState(), status, presence or LiveProcesses(), *size, glyphs)
    return [each.text for each in drawn.lines]


looks = st.builds(
    UiState,
    page=st.sampled_from(Page),
    panel=st.sampled_from(Panel),
    job=st.sampled_from([None, "j1", "j4", "gone"]),
    log_end=st.none() | st.integers(0, 400),
    first_row=st.integers(0, 5),
    top=st.integers(0, 5),
    pattern=st.sampled_from(["", "te-1", "nothing has this", "漢"]),
    question=st.sampled_from([None, *UiPrompt]),
    typed=st.text(max_size=5),
)


@settings(deadline=None)
@given(
    st.sampled_from([-1, 5, 60, 200, 300]),
    looks,
    st.integers(1, 250),
    st.integers(1, 80),
    st.sampled_from([UNICODE, ASCII]),
    st.sampled_from(PlayerMode),
)
def test_every_line_is_as_wide_as_the_terminal_and_there_are_as_many_as_it_has(
    offset: int, look: UiState, width: int, height: int, glyphs: Glyphs, mode: PlayerMode
) -> None:
    view = read_views(LONG)[offset]
    if look.page is Page.JOB and offset == 300:
        view = create_view_builder(3, offset).view(open_job(look))
    status = PlayerStatus(mode=mode, now=view.time, end=400, passed_over=90_000_000, trouble="Kafka is gone")
    lines = draw(view, look, status, LiveProcesses(), width, height, glyphs).lines
    assert len(lines) == height
    for line in lines:
        said = "".join(each.text for each in line.spans)
        assert cell_len(said) == width
        assert said.isprintable()
        assert glyphs.unicode or said.isascii()


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_what_others_wrote_steers_no_terminal(glyphs: Glyphs) -> None:
    (job, *_) = read_views(LONG)[300].jobs
    view = View(
        HOSTILE,
        offset=1,
        masters=(MasterView(HOSTILE, epoch=1),),
        taskexecutors=(TaskExecutorView(HOSTILE, HOSTILE, 2, 1),),
        jobs=(replace(job, job=replace(job.job, name=HOSTILE, job_id=HOSTILE)),),
        log=(LogLine(1, 0, HOSTILE, HOSTILE, "t", mark="!!"),),
    )
    status = PlayerStatus(mode=PlayerMode.LIVE, now=0, notice=HOSTILE, trouble=HOSTILE, source=HOSTILE)
    for page in (Page.MAIN, Page.JOB):
        for line in text(view, UiState(page=page, job=HOSTILE), status, size=(200, 40), glyphs=glyphs):
            assert line.isprintable()
            assert glyphs.unicode or line.isascii()


def test_a_small_terminal_has_all_that_matters() -> None:
    view = create_view_builder("one_task_fails_and_is_restarted_alone", 45).view()
    shown = text(view, size=(80, 24))
    assert " ".join(shown[0].split()).startswith("tailrace top sim PAUSED offset 45 of 45 1970-01-01")
    assert shown[1:9] == [
        "── Masters ─────────────────────────────────────────────────────────────────────",
        "   sim  leads dispatcher, resource_manager, 1 job  epoch 1, since offset 0",
        "── TaskExecutors  1; 2 of 2 slots used ─────────────────────────────────────────",
        "   te-1 ■■ 2/2 2 tasks",
        "── Jobs  1 live ────────────────────────────────────────────────────────────────",
        "   JOB  NAME             STATUS   TASKS             SLOTS  RESTARTS  CHECKPOINTS",
        " ▸ j1   WindowWordCount  RUNNING  2 run 3 fin       2/2           1",
        "── Log ─────────────────────────────────────────────────────────────────────────",
    ]
    at = next(i for i, line in enumerate(shown) if "!!" in line)
    assert shown[at].endswith("!! te-1 → JobMaster j1: Source: Socket Stream (1/1) FAILED: it")
    assert shown[at + 1].strip() == "broke"


def test_who_stands_by_and_who_is_gone() -> None:
    view = View(
        "sim",
        offset=9,
        masters=(MasterView("host:1", ("dispatcher",), 2, 7, 3), MasterView("host:0", since=1)),
    )
    presence = LiveProcesses(
        names={"host:1": "jobmanager-1", "host:2": "jobmanager-2"},
        running={"host:1": False, "host:2": True},
        contenders=("host:2", "host:3"),
    )
    shown = text(view, presence=presence, size=(100, 50))
    assert [each.strip() for each in shown[2:6]] == [
        "jobmanager-1 host:1  leads dispatcher, 2 jobs  epoch 7, since offset 3  is gone",
        "jobmanager-2 host:2  stands by",
        "host:3  stands by",
        "host:0  led before (elected at offset 1)",
    ]


def test_a_hundred_taskexecutors_and_a_thousand_jobs_can_be_looked_through() -> None:
    (job, *_) = read_views(LONG)[300].jobs
    view = View(
        "sim",
        offset=10,
        taskexecutors=tuple(TaskExecutorView(f"te-{i:03}", "", 4, i % 5) for i in range(100)),
        jobs=tuple(replace(job, job=replace(job.job, job_id=f"j{i}")) for i in range(1000)),
    )
    shown = text(view, UiState(job="j500"))
    assert any("j500" in line and "▸" in line for line in shown)
    assert any("of 1000 are shown" in line for line in shown)
    assert any("of 100 are shown" in line for line in shown)
    last = text(view, UiState(panel=Panel.TASKEXECUTORS, first_row=99))
    assert any("te-099" in line for line in last)


def test_a_log_that_is_away_is_told_at_the_top() -> None:
    status = PlayerStatus(mode=PlayerMode.LIVE, now=0, trouble="memory.log can't be read", waits=True)
    shown = text(read_views(LONG)[60], status=status)
    assert "AWAY" in shown[0]
    assert shown[1] == " memory.log can't be read; tries again"


def test_silence_that_is_left_out_is_told() -> None:
    status = PlayerStatus(mode=PlayerMode.PLAYING, now=0, speed=10, passed_over=200_000_000, end=100)
    shown = text(read_views(LONG)[60], status=status)
    assert "PLAYING ×10" in shown[0]
    assert any("Log  3m20 of silence left out" in line for line in shown)


def test_signs_are_those_that_the_encoding_has() -> None:
    assert glyphs_of("utf-8") is UNICODE
    assert glyphs_of("latin-1") is glyphs_of("ascii") is glyphs_of(None) is glyphs_of("no such") is ASCII


@given(st.text(max_size=30), st.integers(0, 30), st.sampled_from([UNICODE, ASCII]))
def test_a_cell_is_as_wide_as_it_is_to_be(said: str, width: int, glyphs: Glyphs) -> None:
    canvas = Canvas(80, glyphs)
    assert cell_len(canvas.cell(canvas.clean(said), width)) == width


@given(st.lists(st.integers(0, 60), min_size=4, max_size=4), st.integers(20, 200))
def test_columns_fill_no_more_than_the_room_and_those_that_are_needed_stay(
    wanted: list[int], room: int
) -> None:
    columns = [Column("A", 4, 10), Column("B", 4, 40), Column("C", 4, 40, need=1), Column("D", 8, 8, need=2)]
    found = widths(columns, room, wanted)
    there = [each for each in found if each]
    assert sum(there) + 2 * (len(there) - 1) <= room
    assert found[0]
    assert found[1]
