"""The changes of state types that need a step when a snapshot of an earlier release is read.

A step turns the fields of one struct, as that release wrote them, into the fields of the next: a field was renamed, has
another type, or is new and its value follows from others. A new field that has a default, or a removed field, needs no
step. Append a step here in the change that needs it, and never remove one: a snapshot has the number of the steps that
its writer knew. tests/services/history/test_golden.py finds a missing step.

    Migration("services.dispatcher.state.Job", {"queue"}, lambda fields: {**fields, "queue": fields["waiting"]})

A new field must have its default in every state below the feature level that sets it, or its step computes it: masters
of both releases read each other's snapshots during an upgrade, and the older one drops what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, Final, NamedTuple


class Migration(NamedTuple):
    """A step for one struct: `struct` is its name in this release, `fields` are those that `apply` makes.

    `apply` gets all fields of the earlier release, also those that had their default, in the form of msgpack: a struct
    is a dict, a tuple or a set a list, and a Map the bytes of a list of pairs.
    """

    struct: str
    fields: Set[str]
    apply: Callable[[dict[str, Any]], dict[str, Any]]


MIGRATIONS: Final[tuple[Migration, ...]] = ()
