"""The client of a cluster: it writes requests to the submissions topic and reads the answers in the log."""

from .accumulators import AccumulatorTotals, KafkaHeartbeatReports
from .checkpoint_requests import CheckpointFailedError, CheckpointProgress, SavepointNotDisposedError
from .client import Client
from .job_incidents import Incident, JobIncidentTracker
from .log_subscription import ClusterSubscription, JobRejectedError, NoAnswerError
from .print_output import OutputRecord, read_output

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
    "read_output",
]
