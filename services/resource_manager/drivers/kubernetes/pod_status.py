"""What the status of a pod means for the worker in it: whether it has ended or cannot start, and why.

Pure functions of the API's objects. A reason is one line for events and logs; it names the pod, its node, and what to
do where somebody can do something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ....configuration.options.kubernetes import IMAGE, POD_TEMPLATE_FILE
from ....configuration.options.task_executor import PROCESS_MEMORY
from .pod_api import Pod

_ENDED: Final = frozenset({"Failed", "Succeeded"})
_NO_IMAGE: Final = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""Not ErrImagePull: the node tries once more at once."""
_NO_CONTAINER: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_EVICTIONS: Final[Mapping[str, str]] = {
    "EvictionByEvictionAPI": "it was evicted, as by the drain of a node",
    "PreemptionByScheduler": "a pod of higher priority has displaced it",
    "DeletionByTaintManager": "its node does not bear it any more (a taint)",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node has ended it, for want of resources or because it shuts down",
}
"""The reasons of the condition DisruptionTarget."""


def name_of(pod: Pod) -> str:
    """Returns the name of a pod."""
    return str(pod["metadata"]["name"])


def is_terminating(pod: Pod) -> bool:
    """Returns whether somebody has deleted the pod, and its processes may still run."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def find_end(pod: Pod, asked: str | None = None) -> str | None:
    """Returns why the processes of a pod have ended; None while they run or may still start. `asked`: why the driver
    has deleted it; None: it has not."""
    status = pod.get("status") or {}
    if status.get("phase") not in _ENDED:
        return None
    disruption = _disruption(pod)
    deletion = _deletion(asked) if is_terminating(pod) and not disruption else ""
    reasons = [disruption, deletion, _flat(status.get("reason")), _flat(status.get("message"))]
    reasons += [_termination(each) for each in _container_states(pod, "terminated")]
    told = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return f"{describe(pod)} has ended{f': {told}' if told else ''}"


def find_obstacle(pod: Pod) -> str | None:
    """Returns why a pod will not start unless somebody helps; None if it runs or may start."""
    for waiting in _container_states(pod, "waiting"):
        reason, message = waiting.get("reason"), _flat(waiting.get("message"))
        told = f"{reason}: {message}" if message else reason
        if reason in _NO_IMAGE:
            images = ", ".join(
                str(each.get("image")) for each in (pod.get("spec") or {}).get("containers", ())
            )
            return (
                f"{describe(pod)} cannot pull its image {images} ({told}): correct {IMAGE.key}, or give the pod the "
                f"imagePullSecrets of that registry in {POD_TEMPLATE_FILE.key}"
            )
        if reason in _NO_CONTAINER:
            return f"{describe(pod)} cannot start its container ({told}): correct {POD_TEMPLATE_FILE.key}"
    return None


def describe_deletion(pod: Pod, asked: str | None) -> str:
    """Returns why a pod that was last seen so is gone. `asked`: why the driver has deleted it; None: it has not."""
    ended = find_end(pod, asked)
    if ended is not None:
        return ended
    disruption, pending = _disruption(pod), _pending(pod)
    if disruption:
        return f"{describe(pod)} is gone: {disruption}"
    return f"{describe(pod)} is gone, {_deletion(asked)}{f'; {pending}' if pending else ''}"


def describe(pod: Pod) -> str:
    """Names the pod and its node."""
    metadata, node = pod["metadata"], (pod.get("spec") or {}).get("nodeName")
    return f"its pod {metadata.get('namespace')}/{metadata['name']}{f' on node {node}' if node else ''}"


def _deletion(asked: str | None) -> str:
    return f"as requested: {asked}" if asked is not None else "somebody has deleted it"


def _conditions(pod: Pod, kind: str, status: str) -> Iterator[Mapping[str, Any]]:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == status:
            yield condition


def _disruption(pod: Pod) -> str:
    for condition in _conditions(pod, "DisruptionTarget", "True"):
        reason, message = str(condition.get("reason")), _flat(condition.get("message"))
        known = _EVICTIONS.get(reason)
        return f"{f'{known} ' if known else ''}({f'{reason}: {message}' if message else reason})"
    return ""


def _pending(pod: Pod) -> str:
    for condition in _conditions(pod, "PodScheduled", "False"):
        return f"no node took it: {_flat(condition.get('message')) or condition.get('reason')}"
    return ""


def _container_states(pod: Pod, state: str) -> Iterator[Mapping[str, Any]]:
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        found = (container.get("state") or {}).get(state)
        if found:
            yield found


def _termination(state: Mapping[str, Any]) -> str:
    reason, code = state.get("reason"), state.get("exitCode")
    if reason == "OOMKilled":
        return f"it needed more memory than its pod has (OOMKilled): raise {PROCESS_MEMORY.key}"
    if code == 0:
        return "exit code 0"
    message = _flat(state.get("message"))
    told = f"exit code {code}{f' ({reason})' if reason and reason != 'Error' else ''}"
    return f"{told}: {message}" if message else told


def _flat(text: object) -> str:
    return " ".join(str(text).split())[:300] if text else ""
