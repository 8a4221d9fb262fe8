"""The event log: one totally ordered topic through which all roles communicate, and the only source of their states."""

from .codec import Codec, Undecodable
from .event_log import EventLog, LogTruncated, LogUnavailable, Tail, Unreadable

__all__ = ["Codec", "EventLog", "LogTruncated", "LogUnavailable", "Tail", "Undecodable", "Unreadable"]
