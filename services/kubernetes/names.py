"""The names and labels of a cluster's resources in Kubernetes."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_NAME_LENGTH: Final = 63


def object_name(*parts: str) -> str:
    """Returns a valid name made of the parts. Different parts have different names."""
    plain = "-".join(parts)
    name = re.sub(r"[^a-z0-9-]+", "-", plain.lower()).strip("-")
    if name == plain and len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(plain.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def label_value(text: str) -> str:
    """Returns a valid value of a label: 63 characters at most, the last of them a letter or digit."""
    label = text[:_NAME_LENGTH].strip("._-")
    return (
        label
        if label == text
        else f"{label[:50].rstrip('._-')}.{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    )


def cluster_labels(cluster_id: str, component: str) -> dict[str, str]:
    """Returns the labels by which the resources of a component of a cluster are found."""
    return {
        "app.kubernetes.io/name": "tailrace",
        "app.kubernetes.io/instance": label_value(cluster_id),
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "tailrace",
    }


def selector_of(labels: dict[str, str]) -> str:
    """Returns the selector of these labels."""
    return ",".join(f"{name}={value}" for name, value in labels.items())
