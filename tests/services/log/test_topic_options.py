"""New topics have the settings that they need, then the operator's, then those that tailrace prefers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.services.configuration import Configuration, ConfigurationError
from tailrace.services.configuration.options.cluster import CLUSTER_ID
from tailrace.services.configuration.options.topics import OWN_SETTINGS, TOPIC_CONFIG
from tailrace.services.log.topic_options import DEFAULT_OPTIONS, TopicOptions
from tailrace.services.log.topic_validation import (
    TopicSettings,
    find_answers_faults,
    find_heartbeats_faults,
    find_log_faults,
    find_submissions_faults,
)
from tailrace.services.log.topics import new_cluster_topics

NAMES = st.sampled_from(["segment.ms", "segment.bytes", "compression.type", "unclean.leader.election.enable"])
VALUES = st.sampled_from(["1", "zstd", "true", '{"count": 3}'])


@given(st.dictionaries(NAMES, VALUES))
def test_settings_can_be_written_and_read(settings: dict[str, str]) -> None:
    text = TOPIC_CONFIG.write(tuple(settings.items()))
    assert dict(TOPIC_CONFIG.read(text)) == settings


def test_options_apply_to_every_topic_of_cluster() -> None:
    configuration = Configuration(
        {
            "topics.replication-factor": "3",
            "topics.min-insync-replicas": "2",
            "topics.config": "segment.ms=3600000;compression.type=zstd",
        }
    )
    for topic in new_cluster_topics("c", TopicOptions.from_configuration(configuration)):
        assert topic.replication_factor == 3
        settings = topic.config or {}
        assert settings["min.insync.replicas"] == "2"
        assert settings["segment.ms"] == "3600000"
        # Kafka expands requests, whatever the options say.
        required = "uncompressed" if topic.topic == "c.submissions" else "zstd"
        assert settings["compression.type"] == required
        assert settings["cleanup.policy"] == "delete"


@pytest.mark.parametrize("options", [DEFAULT_OPTIONS, TopicOptions(3, {"segment.ms": "5"})])
def test_created_topics_have_no_faults(options: TopicOptions) -> None:
    log, submissions, answers, heartbeats, _ = (
        TopicSettings(topic.num_partitions, 3, 3, topic.config or {})
        for topic in new_cluster_topics("c", options)
    )
    assert not list(find_log_faults("c.log", log))
    assert not list(find_submissions_faults("c.submissions", submissions))
    assert not list(find_answers_faults("c.answers", answers))
    assert not list(find_heartbeats_faults("c.heartbeats", heartbeats))


@pytest.mark.parametrize("name", OWN_SETTINGS)
def test_settings_that_tailrace_needs_cannot_be_configured(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"topics\.config sets {name}"):
        Configuration({"topics.config": f"segment.ms=5;{name}=5"})


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"topics.config": "segment.ms"}, "name=value"),
        ({"topics.config": "segment.ms=1;segment.ms=2"}, "name=value"),
        ({"topics.config": "min.insync.replicas=2"}, r"set topics\.min-insync-replicas"),
        (
            {"topics.replication-factor": "2", "topics.min-insync-replicas": "3"},
            r"at most topics\.replication-factor",
        ),
        ({"topics.replication-factor": "0"}, "at least 1"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        Configuration(settings)


@pytest.mark.parametrize("text", ["payments", "payments.prod", "a.b-c.d_e", "jobs.x"])
def test_prefix_may_have_parts(text: str) -> None:
    assert CLUSTER_ID.read(text) == text


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a.job.b", "job", "a/b", "x" * 65])
def test_ambiguous_prefix_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cluster\.id"):
        CLUSTER_ID.read(text)
