"""The base class of all generated classes.

A generated class is the body of an event: every field of its Avro record except the header, which `Event` carries.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Body(msgspec.Struct, frozen=True, gc=False):
    """The body of an event; `AVRO_NAME` is the full name of its Avro record."""

    AVRO_NAME: ClassVar[str]
