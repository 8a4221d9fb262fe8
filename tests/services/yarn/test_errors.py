"""What Hadoop says about known faults gets what to do."""

from __future__ import annotations

import pytest

from tailrace.services.yarn.errors import with_remedy


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "RemoteException: File /user/me/x could only be written to 0 of the 1 minReplication nodes.",
            "HDFS is full",
        ),
        ("DSQuotaExceededException: The DiskSpace quota of /user/me is exceeded: quota = 1 B", "quota"),
        ("SafeModeException: Cannot create file. Name node is in safe mode.", "-safemode leave"),
        (
            "InvalidToken: token (HDFS_DELEGATION_TOKEN owner=me) is expired",
            "ApplicationMaster gets new tokens",
        ),
        (
            "token (token for me: HDFS_DELEGATION_TOKEN owner=me) can't be found in cache",
            "start the application",
        ),
        ("RemoteException: Token for real user: , can't be found in cache", "start the application"),
        ("IOException: GSS initiate failed", "run kinit"),
    ],
)
def test_message_of_hadoop_gets_what_to_do(text: str, remedy: str) -> None:
    told = with_remedy(text)
    assert told.startswith(f"{text}; ")
    assert remedy in told.removeprefix(text)


def test_unknown_message_stays() -> None:
    assert with_remedy("IOException: no") == "IOException: no"
