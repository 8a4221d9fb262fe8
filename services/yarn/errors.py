"""Errors of the conversation with YARN and HDFS."""

from __future__ import annotations

import re
from typing import Final

_REMEDIES: Final = (
    (
        r"HDFS_DELEGATION_TOKEN.*(is expired|can't be found in cache)|[Tt]oken .*can't be found in cache",
        (
            "the delegation token of HDFS is not valid any more: start the application anew, or set "
            "security.kerberos.login.keytab, by which the ApplicationMaster gets new tokens"
        ),
    ),
    (
        r"GSS initiate failed|No valid credentials provided|Client cannot authenticate via:\[TOKEN, KERBEROS\]",
        "there is no valid Kerberos ticket: run kinit, or set security.kerberos.login.keytab and .principal",
    ),
    (
        r"could only be written to 0 of|No space left on device",
        "HDFS is full: free space there (`hdfs dfsadmin -report`), then try again",
    ),
    (
        r"(DS|NS)QuotaExceededException|quota of .* is exceeded",
        "the quota of the directory is used up: free space there, or raise it (`hdfs dfsadmin -setSpaceQuota`)",
    ),
    (
        r"SafeModeException|is in safe mode",
        "HDFS takes no files in safe mode: wait until it has left it, or run `hdfs dfsadmin -safemode leave`",
    ),
)
"""What Hadoop says -> what that means, and what to do."""


class YarnError(Exception):
    """YARN or HDFS has refused a request; the message is Hadoop's own, in one line."""


class AttemptSuperseded(YarnError):
    """YARN does not know this attempt of the application any more: another has taken over, or the application has
    ended."""


class RequestRefused(YarnError):
    """YARN has refused a heartbeat because of a request for a container."""


class JvmEnded(YarnError):
    """The JVM with Hadoop's clients has ended: its process can't talk to YARN any more."""


def with_remedy(text: str) -> str:
    """Returns a message of Hadoop, and what to do if the fault is known."""
    for fault, remedy in _REMEDIES:
        if re.search(fault, text):
            return f"{text}; {remedy}"
    return text
