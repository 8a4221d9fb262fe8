"""Requests about Leases."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from ..kubernetes.api_client import ApiClient, ApiFailure, Place, Resource, ResourceEvent, TimeLimits

_API: Final = "CoordinationV1Api"


class LeaseApi:
    """The Leases of one namespace. Thread-safe. All methods raise ApiFailure."""

    def __init__(self, place: Place, limits: TimeLimits) -> None:
        self._client = ApiClient(place, "lease-election", limits)

    def read(self, name: str) -> Resource | None:
        """Returns a Lease; None: there is none."""
        try:
            return self._client.ask(f"read the Lease {name}", _API, "read_namespaced_lease", name=name)
        except ApiFailure as failure:
            if failure.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def create(self, lease: Resource) -> Resource | None:
        """Creates a Lease and returns it; None: there is one already."""
        return self._write("create", lease, "create_namespaced_lease")

    def replace(self, lease: Resource) -> Resource | None:
        """Writes a Lease that was read and returns it; None: it was changed or deleted since."""
        return self._write("write", lease, "replace_namespaced_lease", name=lease["metadata"]["name"])

    def delete(self, name: str) -> None:
        """Deletes a Lease, if there is one."""
        try:
            self._client.ask(f"delete the Lease {name}", _API, "delete_namespaced_lease", name=name)
        except ApiFailure as failure:
            if failure.status != HTTPStatus.NOT_FOUND:
                raise

    def list(self, selector: str) -> list[Resource]:
        """Returns the Leases with these labels."""
        found = self._client.ask("list Leases", _API, "list_namespaced_lease", label_selector=selector)
        return list(found.get("items") or ())

    def watch(self, name: str, seconds: float) -> Iterator[ResourceEvent]:
        """Yields a Lease as it is, and each change, for so many seconds at most."""
        return self._client.watch(
            f"watch the Lease {name}",
            _API,
            "list_namespaced_lease",
            seconds,
            field_selector=f"metadata.name={name}",
        )

    def stop_watch(self) -> None:
        """Ends a running watch."""
        self._client.stop_watch()

    def _write(self, what: str, lease: Resource, method: str, **arguments: str) -> Resource | None:
        name = lease["metadata"]["name"]
        try:
            return self._client.ask(f"{what} the Lease {name}", _API, method, body=lease, **arguments)
        except ApiFailure as failure:
            # A create of which the namespace is missing is answered by 404, too.
            is_gone = failure.status == HTTPStatus.NOT_FOUND and bool(arguments)
            if failure.status == HTTPStatus.CONFLICT or is_gone:
                return None
            raise
