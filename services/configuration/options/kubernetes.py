"""Options of the worker driver `kubernetes`: where its pods run, and what they are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from ....infra.config.option_types import DURATION, FLOAT, MINUTE, SECOND, choice, derived, optional, pattern
from ....infra.config.options import ConfigOption, Scope
from .kinds import FILE
from .resource_manager import WORKER_DRIVER, WorkerDriver

_SCOPES = (Scope.CLIENT, Scope.JOBMANAGER)
"""CLIENT, because addresses and paths of an installation stay out of the log. No role goes by them."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_OWNER = re.compile(r"(Deployment|StatefulSet)/[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_OBJECT_NAME = pattern("a name of Kubernetes", lambda text: bool(_NAME.fullmatch(text)))
_TEXT = pattern("a text without spaces", lambda text: bool(text) and text.isprintable() and " " not in text)


class ImagePullPolicy(StrEnum):
    """When a node pulls an image."""

    IF_NOT_PRESENT = "IfNotPresent"
    ALWAYS = "Always"
    NEVER = "Never"


NAMESPACE = ConfigOption(
    key="kubernetes.namespace",
    type=_OBJECT_NAME,
    default="default",
    doc="The namespace of the pods that the worker driver `kubernetes` starts.",
    scopes=_SCOPES,
)
CONFIG_FILE = ConfigOption[str | None](
    key="kubernetes.config.file",
    type=FILE,
    default=None,
    doc="The kubeconfig by which jobmanagers reach the API server; none: the service account of their pod.",
    scopes=_SCOPES,
)
CONTEXT = ConfigOption[str | None](
    key="kubernetes.context",
    type=optional(_TEXT),
    default=None,
    doc="The context of that file; none: its current one.",
    scopes=_SCOPES,
)
IMAGE = ConfigOption[str | None](
    key="kubernetes.container.image.ref",
    type=optional(_TEXT),
    default=None,
    doc="The image of TaskExecutors. The worker driver `kubernetes` needs it.",
    scopes=_SCOPES,
    flink="Flink's own image",
)
IMAGE_PULL_POLICY = ConfigOption(
    key="kubernetes.container.image.pull-policy",
    type=choice(ImagePullPolicy),
    default=ImagePullPolicy.IF_NOT_PRESENT,
    doc="When a node pulls the image.",
    scopes=_SCOPES,
)
POD_TEMPLATE_FILE = ConfigOption[str | None](
    key="kubernetes.pod-template-file.taskmanager",
    type=FILE,
    default=None,
    doc="A manifest of a pod in YAML, which every TaskExecutor's pod is made from: volumes, tolerations, sidecars. Its "
    "container `taskexecutor` is that of the TaskExecutor. See [kubernetes.md](kubernetes.md#pods).",
    scopes=_SCOPES,
)
SERVICE_ACCOUNT = ConfigOption(
    key="kubernetes.taskmanager.service-account",
    type=_OBJECT_NAME,
    default="default",
    doc="The service account of these pods, unless the template names one. They get no token of it.",
    scopes=_SCOPES,
)
CPU_AMOUNT = ConfigOption[float | None](
    key="kubernetes.taskmanager.cpu.amount",
    type=derived(FLOAT),
    default=None,
    above=0.0,
    at_most=65_536.0,
    doc="The cores that a TaskExecutor's pod requests. `auto`: taskmanager.cpu.cores, else one for each slot.",
    scopes=_SCOPES,
)
OWNER = ConfigOption[str | None](
    key="kubernetes.taskmanager.owner",
    type=optional(pattern("Deployment/NAME or StatefulSet/NAME", lambda text: bool(_OWNER.fullmatch(text)))),
    default=None,
    doc="What owns these pods, such as Deployment/tailrace-jobmanager: Kubernetes deletes them when it is deleted. "
    "none: they end with the cluster only.",
    scopes=_SCOPES,
    ours=True,
)
RESYNC_INTERVAL = ConfigOption(
    key="kubernetes.resync-interval",
    type=DURATION,
    default=5 * MINUTE,
    at_least=SECOND,
    doc="How often the driver lists all pods, beside watching them.",
    scopes=_SCOPES,
    ours=True,
)

OPTIONS: tuple[ConfigOption[Any], ...] = (
    NAMESPACE,
    CONFIG_FILE,
    CONTEXT,
    IMAGE,
    IMAGE_PULL_POLICY,
    POD_TEMPLATE_FILE,
    SERVICE_ACCOUNT,
    CPU_AMOUNT,
    OWNER,
    RESYNC_INTERVAL,
)


def find_contradictions(configuration: Mapping[str, str]) -> Iterator[str]:
    """Yields a line if the driver is to start pods and has no image for them."""
    if WORKER_DRIVER.of(configuration) is WorkerDriver.KUBERNETES and IMAGE.of(configuration) is None:
        yield f"{WORKER_DRIVER.key} is {WorkerDriver.KUBERNETES.value}, but {IMAGE.key} names no image: set it"
