"""The web page in Chromium: its weight, and the time until a person can use it and sees a large cluster.

The log comes from simulated roles: 200 TaskExecutors of 100 slots, and a job of 2 x 10,000 subtasks, which run. It
takes a minute to write, and is kept in the temporary directory. A REST server over its file serves the page, without
Kafka. Browser and server share the cores.

- `interactive_ms`: from the address, without a cache, to the first frame with the navigation. The raw limit is the
  page's script as a document of plain text: as many bytes from the same server.
- `cluster_ms`, `graph_ms`, `timeline_ms`: from the click on a link to the frame that shows the view. The raw limit is
  its answer, read and parsed in the same browser: nothing is drawn.
- `*_frame_ms`: the time between two frames while a view scrolls. The raw limit is a page that does nothing.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from _conversation import fingerprint
from _report import conditions, median, percentile, report
from _scale import scaled
from _simulated import SLOTS, all_to_all
from playwright.sync_api import Browser, Page, sync_playwright

from tailrace.schemas.event import Event
from tailrace.services.history.archive.exporter import EventSelection, export
from tailrace.services.history.archive.formats import ArchiveFormat
from tailrace.services.log import Codec
from tailrace.services.log.memory import MemoryEventLog

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from page_server import serve_log
from services.simulated_cluster.cluster import Cluster

STATIC = Path(__file__).parents[1] / "services" / "web" / "static"
TASK_EXECUTORS = scaled(200, least=2)
PARALLELISM = TASK_EXECUTORS * SLOTS // 2
ROUNDS = scaled(11, least=2)
FRAMES = scaled(240, least=20)
CLUSTER, JOB = "page", "large"
_VERSION = 1
"""One more whenever the same cluster is told otherwise."""
BEGIN_US = 1_760_000_000_000_000
MOST_STEPS = 10_000_000
PATIENCE_MS = 120_000

VIEWS = {
    "cluster": ("cluster", ".executor", "/api/v1/cluster"),
    "graph": (f"jobs/{JOB}", ".vertex", f"/v1/jobs/{JOB}"),
    "timeline": (f"jobs/{JOB}/timeline", ".timeline .lane", f"/api/v1/jobs/{JOB}/attempts"),
}
"""Name -> the address, an element of the view, and the answer that it shows."""
SCROLLED = {"cluster": "html", "timeline": ".virtual"}

LOADED = """async () => {
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const [{ loadEventEnd }] = performance.getEntriesByType("navigation");
  const [paint] = performance.getEntriesByName("first-contentful-paint");
  return Math.max(loadEventEnd, paint?.startTime ?? 0);
}"""
SHOWN = """async ([hash, selector]) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const start = performance.now();
  location.hash = hash;
  while (document.querySelector(selector) === null) await frame();
  await frame();
  return performance.now() - start;
}"""
READ = """async (path) => {
  const start = performance.now();
  await (await fetch(path)).json();
  return performance.now() - start;
}"""
SCROLL = """async ([selector, frames]) => {
  const box = selector === null ? null : document.querySelector(selector);
  const durations = [];
  let last = await new Promise(requestAnimationFrame);
  for (let number = 0; number < frames; number += 1) {
    box?.scrollBy(0, 150);
    const now = await new Promise(requestAnimationFrame);
    durations.push(now - last);
    last = now;
  }
  return durations;
}"""


def kept_log() -> Path:
    """Returns the file of the log; writes it if it does not exist."""
    name = f"tailrace-page-{_VERSION}-{TASK_EXECUTORS}-{fingerprint()}"
    path = Path(tempfile.gettempdir()) / f"{name}.avro"
    if not path.exists():
        part = path.with_name(f"{name}.{os.getpid()}.part.avro")
        write_log(part)
        part.replace(path)
    return path


def write_log(path: Path) -> None:
    """Writes the log of a cluster whose job runs in all slots."""
    cluster = Cluster()
    cluster.now = BEGIN_US
    cluster.start_master()
    for number in range(TASK_EXECUTORS):
        cluster.start_task_executor(f"te-{number:04}", SLOTS)
    cluster.settle(MOST_STEPS)
    cluster.submit(JOB, all_to_all(PARALLELISM, shared=False))
    cluster.settle(MOST_STEPS)
    log = MemoryEventLog(Codec(CLUSTER), topic=CLUSTER)
    log.append([Event(record.header, record.body) for record in cluster.log])
    export(log, CLUSTER, EventSelection(start=0, end=log.end()), path, ArchiveFormat.AVRO)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Yields Chromium without windows."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise SystemExit("tailrace: there is no Chromium: apt-get install -y chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def load(browser: Browser, url: str) -> float:
    """Returns the milliseconds until a page is shown, without a cache."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    found: float = page.evaluate(LOADED)
    context.close()
    return found


def show(page: Page, name: str) -> float:
    """Returns the milliseconds from another page to a view."""
    hash_, selector, _ = VIEWS[name]
    page.evaluate(SHOWN, ["#/story", "form.filters button"])
    found: float = page.evaluate(SHOWN, [f"#/{hash_}", selector])
    return found


def read(address: str, path: str) -> bytes:
    """Returns the body of an answer."""
    with urllib.request.urlopen(address + path) as answer:
        body: bytes = answer.read()
        return body


def read_first(address: str, path: str) -> bytes:
    """Returns the body of the first answer. The server refuses requests while it reads the log."""
    until = time.monotonic() + PATIENCE_MS / 1_000
    while True:
        try:
            return read(address, path)
        except HTTPError as error:
            if error.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > until:
                raise
            time.sleep(1)


def measure(browser: Browser, address: str) -> dict[str, float]:
    """Returns the times."""
    (script,) = STATIC.glob("assets/*.js")
    loads = [load(browser, f"{address}/#/story") for _ in range(ROUNDS)]
    raw_loads = [load(browser, f"{address}/assets/{script.name}") for _ in range(ROUNDS)]
    figures = {"interactive_ms": median(loads), "raw_interactive_ms": median(raw_loads)}
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{address}/#/story")
    frames: dict[str, list[float]] = {"raw": page.evaluate(SCROLL, [None, FRAMES])}
    for name, (_, _, path) in VIEWS.items():
        shown = [show(page, name) for _ in range(ROUNDS)]
        figures[f"{name}_ms"] = median(shown)
        figures[f"{name}_worst_ms"] = max(shown)
        figures[f"raw_{name}_ms"] = median([page.evaluate(READ, path) for _ in range(ROUNDS)])
        figures[f"{name}_kib"] = len(read(address, path)) / 1024
        if name in SCROLLED:
            frames[name] = page.evaluate(SCROLL, [SCROLLED[name], FRAMES])
    context.close()
    for name, durations in frames.items():
        figures[f"{name}_frame_p50_ms"] = median(durations)
        figures[f"{name}_frame_p99_ms"] = percentile(durations, 99)
    return figures


def main() -> None:
    """Measures and reports."""
    files = [path.read_bytes() for path in STATIC.rglob("*") if path.is_file()]
    figures = {
        "weight_kb": sum(map(len, files)) / 1000,
        "weight_gzip_kb": sum(len(gzip.compress(content, mtime=0)) for content in files) / 1000,
    }
    with running_browser() as browser, serve_log(kept_log()) as address:
        job: dict[str, Any] = json.loads(read_first(address, f"/api/v1/jobs/{JOB}"))["job"]
        assert set(job["tasks"]) == {"RUNNING"}, job["tasks"]
        figures |= measure(browser, address)
        version = browser.version
    under = conditions(
        chromium=version,
        task_executors=TASK_EXECUTORS,
        tasks=sum(job["tasks"].values()),
        rounds=ROUNDS,
    )
    notes = {
        "weight_kb": "all files of the page; aim: below 500",
        "weight_gzip_kb": "as the server sends them",
        "interactive_ms": "from the address to the frame with the navigation, p50",
        "raw_interactive_ms": "raw limit: the script as plain text",
        "cluster_ms": "click to frame; aim: below 1,000",
        "raw_cluster_ms": "raw limit: the answer read and parsed",
        "timeline_ms": "click to frame; aim: below 1,000",
        "raw_timeline_ms": "raw limit: the answer read and parsed",
        "graph_ms": "click to frame; aim: below 1,000",
        "raw_graph_ms": "raw limit: the answer read and parsed",
        "raw_frame_p50_ms": "raw limit: nothing scrolls",
        "timeline_frame_p99_ms": "while it scrolls",
    }
    report("page", figures, under, notes)


if __name__ == "__main__":
    main()
