"""Errors of the conversation with YARN and HDFS."""

from __future__ import annotations


class YarnError(Exception):
    """YARN or HDFS has refused a request; the message is Hadoop's own, in one line."""


class AttemptSuperseded(YarnError):
    """YARN does not know this attempt of the application any more: another has taken over, or the application has
    ended."""


class RequestRefused(YarnError):
    """YARN has refused a heartbeat because of a request for a container."""


class JvmEnded(YarnError):
    """The JVM with Hadoop's clients has ended: its process can't talk to YARN any more."""
