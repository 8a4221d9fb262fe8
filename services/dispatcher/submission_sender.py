"""Finds the sender of a submission that cannot be read, so that it gets an answer.

Every event starts with the same header, and a SubmitJob continues with the job id. If these two can be read after
either framing, whatever schema the record names, they give the client and the job. They are used for an answer only.
"""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec

from ...schemas import avro
from ...schemas.ids import is_id
from ..log.codec import CONFLUENT, CONFLUENT_HEAD, SINGLE_OBJECT, SINGLE_OBJECT_HEAD

_CLIENT = re.compile(r"client/[A-Za-z0-9_.-]{1,64}")


class SubmissionSender(msgspec.Struct, frozen=True):
    """The client of a submission, and the requested job id."""

    client: str
    job_id: str


def sender_of(value: bytes) -> SubmissionSender | None:
    """Returns the sender; None if the bytes do not start with the header of a client's request for a job."""
    if value.startswith(SINGLE_OBJECT):
        start = SINGLE_OBJECT_HEAD
    elif value.startswith(CONFLUENT):
        start = CONFLUENT_HEAD
    else:
        return None
    import fastavro

    stream = io.BytesIO(value)
    stream.seek(start)
    try:
        header: Any = fastavro.schemaless_reader(stream, avro.parsed()["tailrace.Header"], None)
        job_id: Any = fastavro.schemaless_reader(stream, "string", None)
    except Exception:
        # Invalid bytes make reading raise any error.
        return None
    client = header["sender"]
    if _CLIENT.fullmatch(client) is None or not is_id(job_id):
        return None
    return SubmissionSender(client, job_id)
