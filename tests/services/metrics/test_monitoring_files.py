"""Dashboard, alert rules and pages name metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import tailrace
from tailrace.services.metrics.table import METRICS, Kind
from tailrace.services.reference import metrics as page

ROOT = Path(tailrace.__file__).parent
MONITORING = ROOT / "infra" / "monitoring"
OF_PROCESSES = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
NAMES = {metric.name for metric in METRICS} | OF_PROCESSES
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_NAME = re.compile(r"\b(?:tailrace|process)_\w+")
_GROUPED = re.compile(r"\b(?:by|without) \(([^)]*)\)")
_COUNTER_FUNCTION = re.compile(r"\b(?:rate|increase)\((\w+)")


def names(expression: str) -> set[str]:
    return set(_NAME.findall(expression))


def labels(expression: str) -> set[str]:
    return {label.strip() for found in _GROUPED.findall(expression) for label in found.split(",")}


def check(expression: str) -> None:
    """Checks that metrics exist, that they have the labels that the expression groups by, and that rates are of
    counters."""
    found = names(expression)
    assert found
    assert found <= NAMES
    used = [metric for metric in METRICS if metric.name in found]
    assert labels(expression) <= {"instance", *(label for metric in used for label in metric.labels)}
    counters = {metric.name for metric in METRICS if metric.kind is Kind.COUNTER} | OF_PROCESSES
    assert set(_COUNTER_FUNCTION.findall(expression)) <= counters
    assert all(expression.count(opened) == expression.count(closed) for opened, closed in ("()", "[]", "{}"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_is_complete_and_names_existing_metrics(rule: dict[str, Any]) -> None:
    assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    check(rule["expr"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_has_section_in_runbook(rule: dict[str, Any]) -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    section = runbook.partition(f"\n### {rule['alert']}\n")[2].partition("\n#")[0]
    assert len(section.split()) > 10
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_runbook_has_sections_of_alerts_only() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    assert re.findall(r"^### (Tailrace\w+)$", runbook, re.MULTILINE) == [rule["alert"] for rule in RULES]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_names_existing_metrics(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        check(target["expr"])
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_panels_have_own_ids_and_places() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    fields = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(fields) == len(set(fields))
    assert max(x for x, _ in fields) < 24


def test_page_is_up_to_date() -> None:
    assert page.PATH.read_text("utf-8") == page.text()


def test_names_follow_conventions_of_prometheus() -> None:
    assert len({metric.family for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"tailrace_(jobmanager|taskmanager)_\w+", metric.name)
        assert not metric.family.endswith("_total")
        assert not re.search(r"(Ms|Millis|_ms)\b", metric.family)
        assert metric.help.endswith(".")
