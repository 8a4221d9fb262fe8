"""The reports of one attempt in the last seconds, for rates.

A report comes with each beat and at most once a second with a commit, so a rate needs two of them that are some seconds
apart. Time is what the StreamTask has measured: its reports may be late, and its rates stay true.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..common.task_figures import TaskReport

WINDOW_S: Final = 10.0
"""The time between the two reports that a rate is computed from, once the attempt is that old."""


class ReportWindow:
    """One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._reports: deque[TaskReport] = deque([TaskReport()])
        """The first one is that of a task that has just begun."""

    def add(self, report: TaskReport) -> None:
        """Adds the newest report, and drops those that no rate needs any more."""
        reports = self._reports
        reports.append(report)
        oldest = report.activity.measured_s - WINDOW_S
        while len(reports) > 2 and reports[1].activity.measured_s <= oldest:
            reports.popleft()

    @property
    def earliest(self) -> TaskReport:
        """The report with which a rate begins."""
        return self._reports[0]
