"""The web page in a real browser: Debian's Chromium, driven by Playwright.

Every visit holds these: no request goes to another host, the console has no error, and axe-core finds no barrier.
Screenshots are in build/page.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from page_server import serve_log
from playwright.sync_api import Browser, Page, Request, Route, expect
from polling import TIMEOUT_S, wait_until

from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.history.past_logs import LogFinder
from tailrace.services.rest.application import Settings
from tailrace.services.rest.history_server import HistoryServer

from .test_cluster import Cluster

ROOT = Path(__file__).parents[2]
AXE = ROOT / "services" / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = ROOT / "build" / "page"
GOLDEN = ROOT / "tests" / "golden" / "0.1.0"
LOG = GOLDEN / "one_task_fails_and_is_restarted_alone.avro"
QUARANTINES = GOLDEN / "a_task_executor_is_quarantined_and_its_tasks_move.avro"
TOKEN = "0123456789abcdef"
DESK, PHONE = 1280, 375

PROGRAM = """
import tailrace as tr


def numbered(number: int) -> tuple[str, int]:
    return f"key {number % 10}", 1


env = tr.StreamExecutionEnvironment.get_execution_environment()
env.generate(numbered, count=1_000_000, rate_per_second=40.0).key_by(0).sum(1).print()
env.execute("Numbers of a page")
"""

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: make lint-web"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Returns the address of a server over the log of a job whose task fails and restarts."""
    with serve_log(LOG) as address:
        yield address


@contextmanager
def visit(
    browser: Browser, address: str, *, width: int = DESK, theme: Any = "light", is_refused: bool = False
) -> Iterator[Page]:
    """Yields an empty page, and checks at the end that it was at peace. `is_refused`: the server answers some requests
    with errors, which the browser reports."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    context.set_default_timeout(TIMEOUT_S * 1000)
    page = context.new_page()
    troubles: list[str] = []

    def on_console(text: str) -> None:
        if not (is_refused and text.startswith("Failed to load resource")):
            troubles.append(text)

    page.on("console", lambda message: on_console(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith(f"{address}/") else troubles.append(request.url),
    )
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    yield page
    context.close()
    assert troubles == []


def check_access(page: Page) -> None:
    """Checks with axe-core that nothing keeps a person out. An evaluated script is not subject to the page's policy."""
    # A text that appears slowly has no contrast yet.
    expect(page.locator(".loading")).to_have_count(0)
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    barriers = [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found["violations"]]
    assert barriers == [], page.url


def check_width(page: Page) -> None:
    """Checks that a person scrolls up and down only; wide tables scroll inside of themselves."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], page.url


def read(address: str, path: str) -> Any:
    with urllib.request.urlopen(address + path) as answer:
        return json.load(answer)


def visited_pages(address: str, at: str) -> dict[str, str]:
    """Returns name -> address behind `#`, of every page, as of a moment."""
    (job,) = read(address, "/v1/jobs/overview")["jobs"]
    job_id = job["jid"]
    views = ("timeline", "exceptions", "checkpoints", "accumulators", "output", "configuration", "story")
    pages = {"cluster": "cluster", "jobs": "jobs", "job": f"jobs/{job_id}", "submit": "submit"}
    pages |= {"events": "events", "event": "events/32", "stories": "story", "difference": "difference"}
    vertex = read(address, f"/v1/jobs/{job_id}")["vertices"][-1]["id"]
    pages |= {"what-if-form": "what-if", "vertex": f"jobs/{job_id}/vertices/{vertex}"}
    pages |= {view: f"jobs/{job_id}/{view}" for view in views}
    return {name: f"#/{path}?at={at}" for name, path in pages.items()}


def last_moment(address: str, kind: str) -> str:
    """Returns the last moment of the log, as an offset or as a time."""
    last = read(address, "/api/v1/log")["last"]
    if kind == "offset":
        return str(last["offset"])
    time = datetime.datetime.fromtimestamp(last["time"] / 1e6, datetime.UTC)
    return urllib.parse.quote(time.isoformat())


@pytest.mark.parametrize(("width", "theme", "moment"), [(DESK, "light", "offset"), (PHONE, "dark", "time")])
def test_every_page_is_readable_by_everybody(
    browser: Browser, server: str, width: int, theme: str, moment: str
) -> None:
    with visit(browser, server, width=width, theme=theme) as page:
        for name, path in visited_pages(server, last_moment(server, moment)).items():
            page.goto(f"{server}/{path}")
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator(".loading")).to_have_count(0)
            assert page.locator(".empty.failure, .note.warn[role=status]").all_inner_texts() == [], name
            page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{theme}.png", full_page=True)
            check_access(page)
            check_width(page)


def test_page_shows_the_moment_of_its_address(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        for at in ("3", "12"):
            page.goto(f"{server}/#/cluster?at={at}")
            expected = read(server, f"/v1/overview?at={at}")
            for name, field in (("TaskExecutors", "taskmanagers"), ("Free slots", "slots-available")):
                expect(page.locator(f"dt:text-is('{name}') + dd")).to_have_text(str(expected[field]))
            expect(page.get_by_role("region", name="Moment")).to_contain_text(at)


def test_quarantines_are_shown_with_their_reasons(browser: Browser) -> None:
    with serve_log(QUARANTINES) as address, visit(browser, address) as page:
        page.goto(f"{address}/#/cluster?at=53")
        apart = page.get_by_role("region", name="Quarantines").get_by_role("row")
        expect(apart).to_have_count(2)
        expect(apart.last).to_contain_text("te-1quarantineddisk errors")
        cards = page.get_by_role("listitem").filter(has=page.get_by_role("img"))
        expect(cards.filter(has_text="te-1")).to_contain_text(
            "2 slots of 2 jobs stay until other slots are free"
        )
        expect(page.get_by_role("button", name="Release")).to_have_count(0)
        page.set_viewport_size({"width": PHONE, "height": 900})
        check_width(page)
        page.screenshot(path=SCREENSHOTS / "quarantines-phone.png", full_page=True)
        page.set_viewport_size({"width": DESK, "height": 900})
        page.goto(f"{address}/#/cluster")
        expect(apart).to_have_count(3)
        expect(apart.last).to_contain_text("host worker-7drained")
        expect(page.get_by_role("button", name="Release")).to_have_count(2)
        check_access(page)
        page.screenshot(path=SCREENSHOTS / "quarantines.png", full_page=True)
        cards.filter(has_text="te-1").get_by_role("button", name="Drain").click()
        expect(page.get_by_role("dialog")).to_contain_text("It gets no more slots")
        check_access(page)


def read_moment(page: Page) -> int:
    """Returns the offset that the address of a page names."""
    return int(page.evaluate("location.hash").rpartition("at=")[2])


def test_slider_goes_to_every_moment_by_the_keyboard(browser: Browser, server: str) -> None:
    last = read(server, "/api/v1/log")["last"]["offset"]
    with visit(browser, server) as page:
        page.goto(f"{server}/#/cluster")
        slider = page.get_by_role("slider", name="Moment of the log")
        expect(slider).to_have_attribute("aria-valuenow", str(last))
        for key, expected in (("ArrowLeft", last - 1), ("Home", 0), ("ArrowRight", 1), ("End", last)):
            slider.press(key)
            expect(slider).to_have_attribute("aria-valuenow", str(expected))
            assert read_moment(page) == expected
        page.get_by_role("button", name="Now").click()
        assert "at=" not in page.url


def test_slider_goes_where_the_pointer_is(browser: Browser, server: str) -> None:
    """The moment is that of the last event before the place of the pointer, up to the width of a bar."""
    overview = read(server, "/api/v1/log?buckets=160")
    first, last = (overview[end]["time"] for end in ("first", "last"))
    events = read(server, "/api/v1/events?limit=1000")["events"]
    with visit(browser, server) as page:
        page.goto(f"{server}/#/cluster")
        slider = page.get_by_role("slider", name="Moment of the log")
        box = slider.bounding_box()
        assert box is not None
        bar = overview["bucket_duration"] + (last - first) / box["width"]
        for share in (0.9, 0.5, 0.01):
            page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            pointed = first + share * (last - first)
            until = {each["offset"] for each in events if each["header"]["time"] <= pointed + bar}
            surely = {each["offset"] for each in events if each["header"]["time"] <= pointed - bar}
            page.wait_for_url(lambda url: "at=" in url)
            low, high = max(surely, default=0), max(until)
            is_near = functools.partial(_is_moment_between, page, low, high)
            wait_until(is_near, f"the moment at {share} of the history")


def _is_moment_between(page: Page, low: int, high: int) -> bool:
    return low <= read_moment(page) <= high


def test_history_plays_to_its_end(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        page.goto(f"{server}/#/jobs")
        page.get_by_label("Speed").select_option("3600×")
        page.get_by_role("button", name="Play the history").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(page.get_by_role("button", name="Play the history")).to_be_visible()
        expect(page.get_by_text("Finished", exact=True)).to_be_visible()
        assert "at=" not in page.url


def test_failure_leads_to_its_cause_and_to_its_effects(browser: Browser, server: str) -> None:
    failures = read(server, "/api/v1/events?type=UpdateTaskExecutionState&limit=100")["events"]
    failed = next(each for each in failures if each["fields"]["execution_state"] == "FAILED")
    with visit(browser, server) as page:
        page.goto(f"{server}/#/events/{failed['offset']}")
        causes = page.get_by_role("region", name="Causes, back to the first one")
        expect(causes.get_by_role("row")).to_have_count(
            len(read(server, f"/api/v1/events/{failed['offset']}/causes")["lines"]) + 1
        )
        effect = page.locator(".effects a").first
        effect_offset = effect.inner_text()
        effect.click()
        expect(page.locator("dt:text-is('cause') + dd")).to_have_text(str(failed["offset"]))
        expect(page.locator("dt:text-is('offset') + dd")).to_have_text(effect_offset)
        page.get_by_role("button", name="Show the cluster at this event").click()
        assert read_moment(page) == int(effect_offset)


def test_theme_that_a_user_chooses_is_kept(browser: Browser, server: str) -> None:
    with visit(browser, server, theme="light") as page:
        page.goto(f"{server}/#/jobs?at=3")
        page.get_by_role("button", name="Use dark colours").click()
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_token_is_asked_for_and_lives_in_the_tab(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with serve_log(LOG, tmp_path / "token") as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{address}/#/jobs?at=12")
        check_access(page)
        for text, heading in (("wrong", "Token"), (TOKEN, "Jobs")):
            page.get_by_label("Token").fill(text)
            page.get_by_role("button", name="Continue").click()
            expect(page.get_by_role("heading", level=1)).to_have_text(heading)
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        context.close()


def test_lost_connection_is_shown(browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    with serve_log(LOG) as address:
        page.goto(f"{address}/#/jobs")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="WindowWordCount")).to_be_visible()
    expect(page.get_by_text("The connection to the server is lost.")).to_be_visible()
    expect(page.get_by_role("link", name="WindowWordCount")).to_be_visible()
    context.close()


def test_page_shows_what_happens_without_being_loaded_again(browser: Browser, four_slots: Cluster) -> None:
    (master,) = json.loads(four_slots.ok("cluster", "status", "-o", "json").stdout)["masters"]
    address = f"http://{master['endpoints']['rest']}"
    (four_slots.home.parent / "page_numbers.py").write_text(PROGRAM)
    with visit(browser, address) as page:
        page.goto(f"{address}/#/jobs")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        job_id = four_slots.ok("run", "-d", "-p", "2", "page_numbers.py").stdout.strip()
        page.get_by_role("link", name="Numbers of a page").click()
        expect(page.locator(".title .status")).to_have_text("running")
        expect(page.locator(".vertex")).to_have_count(2)
        expect(page.locator(".vertex", has_text="Generator")).to_contain_text("/s in")
        check_access(page)
        page.screenshot(path=SCREENSHOTS / "live-job.png", full_page=True)
        four_slots.ok("cancel", job_id)
        expect(page.locator(".title .status")).to_have_text("canceled")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nowhere?at=3", "There is no page nowhere"),
        ("jobs/nobody", "nobody not found"),
        ("jobs/nobody/timeline?at=3", "nobody not found"),
        ("events/999999", "999999"),
        ("jobs?at=999999", "999999"),
        ("jobs?at=never", "never"),
        ("events?to=never", "never"),
        ("story?entity=nobody", "nobody"),
        ("difference?from=999999", "999999"),
        ("what-if?at=3&scenario=events: [{at: 1 s, kill: nobody}]", "there is no TaskExecutor 'nobody'"),
    ],
)
def test_page_of_what_is_not_there_says_so(browser: Browser, server: str, path: str, text: str) -> None:
    with visit(browser, server, is_refused=True) as page:
        page.goto(f"{server}/#/{path}")
        expect(page.locator("main")).to_contain_text(text)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        check_access(page)
        expect(page.get_by_text("connection to the server is lost")).to_have_count(0)


@pytest.mark.parametrize("moment", ["", "?at=12"])
def test_what_is_not_available_is_asked_for_again(browser: Browser, server: str, moment: str) -> None:
    refused: list[str] = []

    def refuse_once(route: Route) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            route.fulfill(status=503, json={"errors": ["The server still reads the log."]})

    with visit(browser, server, is_refused=True) as page:
        page.route("**/api/v1/jobs*", refuse_once)
        page.goto(f"{server}/#/jobs{moment}")
        expect(page.get_by_text("The server still reads the log.")).to_be_visible()
        expect(page.get_by_role("link", name="WindowWordCount")).to_be_visible()


def set_visibility(page: Page, state: str) -> None:
    """Tells a page that it is "hidden" behind another tab, or "visible"."""
    page.evaluate(
        """(state) => {
          Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        state,
    )


def test_hidden_page_reads_nothing(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        page.clock.install()
        page.goto(f"{server}/#/jobs")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        page.wait_for_load_state("load")
        set_visibility(page, "hidden")
        requests: list[Request] = []
        page.on("request", lambda request: requests.append(request))
        page.clock.run_for(600_000)
        assert requests == []
        with page.expect_request("**/api/v1/jobs"), page.expect_request("**/api/v1/events/stream*"):
            set_visibility(page, "visible")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_events_are_paged_from_the_newest_on(browser: Browser, server: str) -> None:
    wanted = "type=UpdateTaskExecutionState"
    offsets = [each["offset"] for each in read(server, f"/api/v1/events?{wanted}&limit=1000")["events"]]
    with visit(browser, server) as page:
        shown = page.get_by_role("region", name="Events").get_by_role("row")
        page.goto(f"{server}/#/events?{wanted}")
        expect(shown.last).to_contain_text(str(offsets[-1]))
        page.goto(f"{server}/#/events?{wanted}&to={offsets[2]}")
        expect(shown).to_have_count(4)
        expect(shown.last).to_contain_text(str(offsets[2]))
        page.get_by_role("link", name="Later").click()
        expect(shown.nth(1)).to_contain_text(str(offsets[3]))
        page.get_by_role("link", name="Earlier").click()
        expect(shown.last).to_contain_text(str(offsets[2]))


@pytest.mark.parametrize("events", [0, 1])
def test_page_of_short_log_is_usable(browser: Browser, tmp_path: Path, events: int) -> None:
    file = tmp_path / "short.avro"
    with closing(FileLog.open(LOG)) as log:
        export(log, "short", EventSelection(0, events), file, ArchiveFormat.AVRO)
    with serve_log(file) as address, visit(browser, address) as page:
        page.goto(f"{address}/#/events")
        expect(page.get_by_role("region", name="Events").get_by_role("row")).to_have_count(events and 2)
        expect(page.get_by_role("slider")).to_have_count(events)
        check_access(page)
        if events:
            for key in ("ArrowLeft", "PageUp", "PageDown", "End", "Home"):
                page.get_by_role("slider").press(key)
                assert read_moment(page) == 0
            page.get_by_role("button", name="Play the history").click()
            page.wait_for_url(lambda url: "at=" not in url)


def test_player_waits_until_a_moment_is_shown(browser: Browser, server: str) -> None:
    """A server that is slower than the player's frames does not end it, and no moment is left out."""
    held: list[Route] = []
    with visit(browser, server) as page:

        def is_held(count: int) -> bool:
            page.clock.run_for(250)
            return len(held) == count

        page.goto(f"{server}/#/jobs?at=0")
        expect(page.get_by_text("No job was submitted.")).to_be_visible()
        page.get_by_label("Speed").select_option("1×")
        page.clock.install()
        page.route("**/api/v1/jobs*", lambda route: held.append(route))
        page.get_by_role("button", name="Play the history").click()
        wait_until(lambda: is_held(1), "a request for the next moment")
        moment = read_moment(page)
        page.clock.run_for(10_000)
        assert (len(held), read_moment(page)) == (1, moment)
        held[0].continue_()
        wait_until(lambda: is_held(2), "a request for the moment after it")
        assert read_moment(page) > moment
        page.get_by_role("button", name="Pause").click()


def test_what_if_is_composed_by_the_keyboard_and_drawn(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        page.goto(f"{server}/#/what-if?at=20")
        form = page.get_by_role("form", name="Add a change")
        form.get_by_label("How many").fill("2")
        form.get_by_label("Slots of each").press("Enter")
        form.get_by_label("Change").select_option("A TaskExecutor dies")
        expect(form.get_by_role("combobox", name="TaskExecutor", exact=True)).to_have_value("te-1")
        form.get_by_label("After").fill("30 s")
        form.get_by_label("After").press("Enter")
        form.get_by_label("Change").select_option("An option has another value")
        form.get_by_label("Key").fill("cluster.evenly-spread-out-slots")
        value = form.get_by_role("textbox", name="Value")
        value.fill("true")
        value.press("Enter")
        expect(page.get_by_label("Scenario, in YAML")).to_have_value(
            "until: 10 min\nevents:\n  - {at: 10 s, join: {count: 2}}\n  - {at: 30 s, kill: te-1}\n"
            "configuration:\n  cluster.evenly-spread-out-slots: true\n"
        )
        page.get_by_role("button", name="Simulate").press("Enter")
        result = page.get_by_role("region", name="Result")
        expect(result.get_by_role("listitem").filter(has_text="slots instead of 2.")).to_be_visible()
        row = result.get_by_role("button", name="te-1/0")
        row.press("Enter")
        holders = page.get_by_role("region", name="Who held slot te-1/0")
        expect(holders.get_by_role("row").filter(has_text="simulated").first).to_contain_text("subtask 0")
        page.screenshot(path=SCREENSHOTS / "what-if.png", full_page=True)
        check_access(page)
        check_width(page)
        # The address has the scenario: a link shows the same result.
        page.reload()
        expect(row).to_be_visible()


def loaded_subtasks(route: Route, number: int) -> None:
    """Answers with 60 subtasks that run."""
    load = {"records_out_per_second": 80, "back_pressured": 0.2, "watermark": 1_700_000_000_000}
    subtasks = [
        {
            "subtask": subtask,
            "attempt": subtask % 2,
            "state": "RUNNING",
            "task_executor": f"te-{subtask % 4}",
            "load": {
                **load,
                "records_in_per_second": 900 + 40 * (subtask + number) % 300,
                "busy": subtask / 100,
                "idle": 0.8 - subtask / 100,
                "pending_records": 17 if subtask == 0 else None,
            },
        }
        for subtask in range(60)
    ]
    route.fulfill(json={"now": 1_700_000_000_000 + number, "name": "Flat Map", "subtasks": subtasks})


def test_subtasks_of_vertex_are_seen_beside_each_other(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "running.avro"
    with closing(FileLog.open(LOG)) as log:
        export(log, "running", EventSelection(0, 35), file, ArchiveFormat.AVRO)
    with serve_log(file) as address, visit(browser, address, width=PHONE, theme="dark") as page:
        page.goto(f"{address}/#/jobs")
        page.locator("main").get_by_role("link").first.click()
        numbers = count()
        page.route("**/subtasks", lambda route: loaded_subtasks(route, next(numbers)))
        page.clock.install()
        page.get_by_role("article").get_by_role("link").first.press("Enter")
        tile = page.get_by_role("article", name="Subtask 0", exact=True)
        expect(tile).to_contain_text("Lag 17")
        expect(page.locator("dt:text-is('Busiest subtask') + dd")).to_have_text("59: 59 %")
        for _ in range(3):
            with page.expect_response("**/subtasks"):
                page.clock.run_for(3_000)
        expect(tile.locator("polyline")).to_have_attribute("points", re.compile(r"(\S+ ){2,}\S+"))
        assert page.get_by_role("article").count() <= 60
        page.screenshot(path=SCREENSHOTS / "subtasks.png", full_page=True)
        check_access(page)
        check_width(page)


@pytest.fixture(scope="module")
def history_server() -> Iterator[str]:
    """Returns the address of a history server of two clusters, and of a file that is no log."""
    listening = socket.create_server(("127.0.0.1", 0))
    files = [LOG, LOG.with_name("a_job_finishes.avro"), Path(__file__)]
    with HistoryServer(LogFinder(files), 1e6, listening, Settings(), 64) as server:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        wait_until(lambda: all(each.summary for each in server.clusters.all()), "both logs to be read")
        yield address


@pytest.mark.parametrize(("width", "theme"), [(DESK, "light"), (PHONE, "dark")])
def test_history_server_lists_clusters_that_nobody_can_change(
    browser: Browser, history_server: str, width: int, theme: str
) -> None:
    clusters = read(history_server, "/api/v1/clusters")["clusters"]
    assert len(clusters) == 2
    with visit(browser, history_server, width=width, theme=theme) as page:
        page.goto(f"{history_server}/")
        expect(page.get_by_role("region", name="Clusters").get_by_role("link")).to_have_text(
            [each["name"] for each in clusters]
        )
        expect(page.get_by_role("region", name="Places without a readable log")).to_contain_text(
            "test_page.py"
        )
        page.screenshot(path=SCREENSHOTS / f"clusters-{width}-{theme}.png", full_page=True)
        check_access(page)
        check_width(page)
        for each in clusters:
            page.get_by_role("link", name=each["name"], exact=True).click()
            sections = page.get_by_role("navigation", name="Sections")
            expect(sections).to_have_text("ClusterJobsEventsStoryDifferenceWhat if")
            sections.get_by_role("link", name="Jobs").click()
            page.locator("main").get_by_role("link").first.click()
            expect(page.locator(".vertex").first).to_be_visible()
            expect(page.get_by_role("region", name="Actions")).to_have_count(0)
            page.screenshot(path=SCREENSHOTS / f"job-of-{each['name']}-{width}-{theme}.png", full_page=True)
            check_access(page)
            check_width(page)
            page.get_by_role("link", name=each["name"], exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Clusters")


def test_every_page_of_past_cluster_is_served_below_its_path(browser: Browser, history_server: str) -> None:
    clusters = read(history_server, "/api/v1/clusters")["clusters"]
    (path,) = (each["path"] for each in clusters if each["place"] == str(LOG))
    address = f"{history_server}{path}"
    with visit(browser, address) as page:
        for name, place in visited_pages(address, last_moment(address, "offset")).items():
            # With a query of its own, the document of each page is loaded anew.
            page.goto(f"{address}/?{name}{place.partition('?')[0]}")
            if name == "submit":
                expect(page.locator("main")).to_contain_text("A history server only reads logs")
                continue
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize(("width", "theme"), [(DESK, "light"), (PHONE, "dark")])
def test_uploaded_program_is_planned_and_deleted(
    browser: Browser, tmp_path: Path, width: int, theme: str
) -> None:
    with (
        serve_log(LOG, programs=tmp_path / "programs") as address,
        visit(browser, address, width=width, theme=theme) as page,
    ):
        page.goto(f"{address}/#/submit")
        # Not a click: content that arrives meanwhile moves the link from under the pointer.
        page.get_by_role("link", name="Upload").press("Enter")
        file = {"name": "page_numbers.py", "mimeType": "text/x-python", "buffer": PROGRAM.encode()}
        page.get_by_label("File").set_input_files(file)
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("button", name="Draw the plan").click()
        plan = page.get_by_role("region", name="Plan of Numbers of a page")
        expect(plan.get_by_role("article")).to_have_count(1)
        page.get_by_role("button", name="Run", exact=True).hover()
        page.screenshot(path=SCREENSHOTS / f"upload-{width}-{theme}.png", full_page=True)
        check_access(page)
        check_width(page)
        page.get_by_role("button", name="Delete page_numbers.py").click()
        check_access(page)
        page.get_by_role("button", name="Delete the program").click()
        expect(page.get_by_text("No program is uploaded.")).to_be_visible()
        assert read(address, "/jars")["files"] == []


def test_upload_shows_how_much_is_sent(browser: Browser, tmp_path: Path) -> None:
    with serve_log(LOG, programs=tmp_path / "programs") as address, visit(browser, address) as page:
        page.goto(f"{address}/#/submit/programs")
        network = page.context.new_cdp_session(page)
        network.send("Network.enable")
        slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 400_000}
        network.send("Network.emulateNetworkConditions", slow)
        content = f"# {'x' * 600_000}\n".encode()
        page.get_by_label("File").set_input_files(
            {"name": "large.py", "mimeType": "text/x-python", "buffer": content}
        )
        page.get_by_role("button", name="Upload").click()
        expect(page.get_by_role("progressbar", name="Upload")).to_be_visible()
        expect(page.get_by_role("link", name="large.py")).to_be_visible()
        expect(page.get_by_role("progressbar")).to_have_count(0)


def test_upload_is_hidden_if_the_server_runs_no_programs(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        page.goto(f"{server}/#/submit/programs")
        expect(page.get_by_role("button", name="Submit")).to_be_visible()
        expect(page.get_by_text("Upload")).to_have_count(0)
