"""The web page in a real browser: Debian's Chromium, driven by Playwright.

Every visit holds these: no request goes to another host, the console has no error, and axe-core finds no barrier.
Screenshots are in build/page.
"""

from __future__ import annotations

import functools
import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from page_server import serve_log
from playwright.sync_api import Browser, Page, expect
from polling import wait_until

from tailrace.services.history.past_logs import LogFinder
from tailrace.services.rest.application import Settings
from tailrace.services.rest.history_server import HistoryServer

from .test_cluster import Cluster

ROOT = Path(__file__).parents[2]
AXE = ROOT / "services" / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = ROOT / "build" / "page"
LOG = ROOT / "tests" / "golden" / "0.1.0" / "one_task_fails_and_is_restarted_alone.avro"
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
def visit(browser: Browser, address: str, *, width: int = DESK, theme: Any = "light") -> Iterator[Page]:
    """Yields an empty page, and checks at the end that it was at peace."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
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


def visited_pages(address: str) -> dict[str, str]:
    """Returns name -> address behind `#`, of every page, as of the end of the log."""
    with urllib.request.urlopen(f"{address}/v1/jobs/overview") as answer:
        at, (job,) = answer.headers["Tailrace-Offset"], json.load(answer)["jobs"]
    job_id = job["jid"]
    views = ("timeline", "exceptions", "checkpoints", "accumulators", "output", "configuration", "story")
    pages = {"cluster": "cluster", "jobs": "jobs", "job": f"jobs/{job_id}", "submit": "submit"}
    pages |= {"events": "events", "event": "events/32", "stories": "story", "difference": "difference"}
    pages |= {view: f"jobs/{job_id}/{view}" for view in views}
    return {name: f"#/{path}?at={at}" for name, path in pages.items()}


@pytest.mark.parametrize(("width", "theme"), [(DESK, "light"), (PHONE, "dark")])
def test_every_page_is_readable_by_everybody(browser: Browser, server: str, width: int, theme: str) -> None:
    with visit(browser, server, width=width, theme=theme) as page:
        for name, path in visited_pages(server).items():
            page.goto(f"{server}/{path}")
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator(".loading")).to_have_count(0)
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


def read_moment(page: Page) -> int:
    """Returns the offset that the address of a page names."""
    return int(page.url.rpartition("at=")[2])


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
            page.wait_for_function("Number(location.hash.split('at=')[1]) >= 0")
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
    expect(page.get_by_text("The connection to the server is lost.")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("link", name="WindowWordCount")).to_be_visible()
    context.close()


def test_page_shows_what_happens_without_being_loaded_again(browser: Browser, four_slots: Cluster) -> None:
    (master,) = json.loads(four_slots.ok("cluster", "status", "-o", "json").stdout)["masters"]
    address = f"http://{master['endpoints']['rest']}"
    (four_slots.home.parent / "page_numbers.py").write_text(PROGRAM)
    with visit(browser, address) as page:
        page.goto(f"{address}/#/jobs")
        expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=60_000)
        job_id = four_slots.ok("run", "-d", "page_numbers.py").stdout.strip()
        page.get_by_role("link", name="Numbers of a page").click(timeout=60_000)
        expect(page.locator(".title .status")).to_have_text("running", timeout=60_000)
        expect(page.locator(".vertex")).to_have_count(2)
        expect(page.locator(".vertex", has_text="Generator")).to_contain_text("/s in", timeout=60_000)
        check_access(page)
        page.screenshot(path=SCREENSHOTS / "live-job.png", full_page=True)
        four_slots.ok("cancel", job_id)
        expect(page.locator(".title .status")).to_have_text("canceled", timeout=60_000)


def test_unknown_page_says_so(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        page.goto(f"{server}/#/nowhere?at=3")
        expect(page.locator("main")).to_contain_text("There is no page nowhere")


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
            expect(sections).to_have_text("ClusterJobsEventsStoryDifference")
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
        for name, place in visited_pages(address).items():
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
        page.get_by_role("link", name="Upload").click()
        file = {"name": "page_numbers.py", "mimeType": "text/x-python", "buffer": PROGRAM.encode()}
        page.get_by_label("File").set_input_files(file)
        page.get_by_role("button", name="Upload").click()
        page.get_by_role("button", name="Draw the plan").click()
        plan = page.get_by_role("region", name="Plan of Numbers of a page")
        expect(plan.get_by_role("article")).to_have_count(2, timeout=60_000)
        page.get_by_role("button", name="Run", exact=True).hover()
        page.screenshot(path=SCREENSHOTS / f"upload-{width}-{theme}.png", full_page=True)
        check_access(page)
        check_width(page)
        page.get_by_role("button", name="Delete page_numbers.py").click()
        check_access(page)
        page.get_by_role("button", name="Delete the program").click()
        expect(page.get_by_text("No program is uploaded.")).to_be_visible()
        assert read(address, "/jars")["files"] == []


def test_upload_is_hidden_if_the_server_runs_no_programs(browser: Browser, server: str) -> None:
    with visit(browser, server) as page:
        page.goto(f"{server}/#/submit/programs")
        expect(page.get_by_role("button", name="Submit")).to_be_visible()
        expect(page.get_by_text("Upload")).to_have_count(0)
