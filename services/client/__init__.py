"""The client of a cluster: it writes requests to the submissions topic, and reads the answers in the log or, without
the right to read it, in the topic of answers."""

from .accumulators import AccumulatorTotals, KafkaHeartbeatReports
from .checkpoint_requests import CheckpointFailedError, CheckpointProgress, SavepointNotDisposedError
from .client import Client
from .job_incidents import Incident, JobIncidentTracker
from .log_subscription import ClusterSubscription
from .print_output import OutputRecord, read_output
from .subscription import JobRejectedError, NoAnswerError, Subscription

__all__ = [
    "CheckpointFailedError",
    "Client",
    "ClusterSubscription",
    "AccumulatorTotals",
    "Incident",
    "JobIncidentTracker",
    "JobRejectedError",
    "KafkaHeartbeatReports",
    "NoAnswerError",
    "OutputRecord",
    "CheckpointProgress",
    "SavepointNotDisposedError",
    "Subscription",
    "read_output",
]
