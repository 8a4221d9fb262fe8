"""A projection that follows a log for years keeps what the cluster still has, and forgets the rest."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tailrace.services.core.role import DISPATCHER
from tailrace.services.dispatcher.state import DispatcherState, Submission
from tailrace.services.history import HistoryProjection, projection
from tailrace.services.history.archive.file_log import FileLog
from tailrace.services.job_master.state import StartedJob
from tailrace.services.log.event_log import read_to_end

GOLDEN = sorted((Path(__file__).parents[2] / "golden" / "0.1.0").glob("*.avro"))


@pytest.mark.parametrize("path", GOLDEN[::3], ids=lambda path: path.stem)
def test_times_and_names_belong_to_jobs_of_states(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "_MORE_TASK_NAMES", 0)
    fold, everything = HistoryProjection(), HistoryProjection(past=False)
    most = 0
    with closing(FileLog.open(path)) as log:
        for record in (record for batch in read_to_end(log) for record in batch):
            entry, expected = fold.apply(record), everything.apply(record)
            dispatcher = fold.replica.states.get(DISPATCHER, DispatcherState())
            waiting = {each.job_id for each in dispatcher.requests.values() if isinstance(each, Submission)}
            assert {*fold.submitted, *fold.ended} <= {*dispatcher.jobs, *waiting}
            masters = [each for each in fold.replica.states.values() if isinstance(each, StartedJob)]
            most = max(most, sum(len(each.executions) for each in masters))
            assert len(fold.task_names) <= 3 * most
            attempt = getattr(record.body, "execution_attempt_id", None)
            if any(attempt in each.executions for each in masters):
                assert entry.task == expected.task
