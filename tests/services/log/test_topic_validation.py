"""Settings of topics that lose data are named; safe settings are not."""

from __future__ import annotations

import pytest

from tailrace.services.configuration.options.topics import ACCEPTED_SETTINGS
from tailrace.services.log.topic_validation import (
    TopicSettings,
    find_heartbeats_faults,
    find_log_faults,
    find_submissions_faults,
)

KEEPS = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        (TopicSettings(1, 3, 3, KEEPS), {}),
        (TopicSettings(1, 1, 1, KEEPS), {}),
        (TopicSettings(1, 2, 3, KEEPS), {}),
        (TopicSettings(1, 1, 1), {}),
        (TopicSettings(2, 3, 3, KEEPS), {"partitions": "2"}),
        (TopicSettings(1, 1, 3, KEEPS), {"replication.factor": "1"}),
        (TopicSettings(1, 3, 3, {**KEEPS, "retention.ms": "604800000"}), {"retention.ms": "604800000"}),
        (TopicSettings(1, 3, 3, {**KEEPS, "retention.bytes": "5"}), {"retention.bytes": "5"}),
        (
            TopicSettings(1, 3, 3, {**KEEPS, "cleanup.policy": "compact,delete"}),
            {"cleanup.policy": "compact,delete"},
        ),
        (
            TopicSettings(1, 3, 3, {**KEEPS, "unclean.leader.election.enable": "true"}),
            {"unclean.leader.election.enable": "true"},
        ),
        (TopicSettings(1, 2, 3, {**KEEPS, "min.insync.replicas": "2"}), {}),
    ],
)
def test_log_must_keep_all_events_in_order(found: TopicSettings, faults: dict[str, str]) -> None:
    result = list(find_log_faults("c.log", found))
    assert {fault.setting: fault.found for fault in result} == faults
    # Each fault can be accepted by its name.
    for fault in result:
        assert ACCEPTED_SETTINGS.type.read(fault.setting) == fault.setting


def test_log_with_too_few_replicas_for_append_is_refused() -> None:
    (fault,) = find_log_faults("c.log", TopicSettings(1, 2, 3, {**KEEPS, "min.insync.replicas": "3"}))
    assert str(fault) == "min.insync.replicas is 3, more than its 2 replicas: Kafka refuses to append"
    # It cannot be accepted: nothing can be appended.
    with pytest.raises(ValueError, match="accepted-settings"):
        ACCEPTED_SETTINGS.read(fault.setting)


def test_submissions_must_not_be_compacted() -> None:
    compacted = TopicSettings(3, 1, 1, {**KEEPS, "cleanup.policy": "compact"})
    assert [fault.setting for fault in find_submissions_faults("c.submissions", compacted)] == [
        "cleanup.policy"
    ]
    limited = TopicSettings(3, 1, 1, {**KEEPS, "retention.ms": "5"})
    assert list(find_submissions_faults("c.submissions", limited)) == []


def test_heartbeats_need_both_directions() -> None:
    assert list(find_heartbeats_faults("c.heartbeats", TopicSettings(2, 1, 1))) == []
    (fault,) = find_heartbeats_faults("c.heartbeats", TopicSettings(1, 1, 1))
    assert str(fault) == "it has 1 partitions instead of 2"


def test_unknown_setting_cannot_be_accepted() -> None:
    with pytest.raises(ValueError, match="segment"):
        ACCEPTED_SETTINGS.type.read("retention.ms,segment.ms")
