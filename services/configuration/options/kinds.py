"""Scopes and types that options of several subjects share."""

from __future__ import annotations

import re

from ....infra.config.option_types import optional, pattern
from ....infra.config.options import Scope
from ....schemas.ids import is_id

EVERYONE = (Scope.CLIENT, Scope.JOBMANAGER, Scope.TASKMANAGER)
MASTER = (Scope.JOBMANAGER,)
WORKER = (Scope.TASKMANAGER,)
BOTH = (Scope.JOBMANAGER, Scope.TASKMANAGER)
ID = pattern("1 to 64 letters, digits, '-' or '_'", is_id)
TOPIC_PREFIX = pattern(
    "1 to 64 letters, digits, '-' or '_', in parts with '.' between them, none of them `job` or `submissions`",
    lambda text: (
        len(text) <= 64
        and all(is_id(part) and part not in ("job", "submissions") for part in text.split("."))
    ),
)
"""Such a part would let one cluster take another's topics for those of a job or a tenant of its own."""
_SERVERS = re.compile(r"([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}(,([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5})*")
_NODE = re.compile(r"(/[^/\s]+)+")
SERVER_LIST = pattern("host:port,... or nothing", lambda text: not text or bool(_SERVERS.fullmatch(text)))
NODE_PATH = pattern(
    "an absolute path of ZooKeeper such as /tailrace",
    lambda text: (
        text.isprintable() and bool(_NODE.fullmatch(text)) and not {".", ".."} & set(text.split("/"))
    ),
)
HOST = pattern("a name or address", lambda text: bool(text) and text.isprintable() and " " not in text)
"""What a server listens on."""
_SPARK_MASTER = re.compile(rf"local|yarn|spark://{_SERVERS.pattern}|k8s://(https?://)?[^\s,]+")
SPARK_MASTER_URL = pattern(
    "`local`, `spark://host:port,...`, `yarn`, or `k8s://https://host:port`",
    lambda text: bool(_SPARK_MASTER.fullmatch(text)),
)
_SPARK_SETTING = re.compile(r"\s*spark\.[A-Za-z0-9_.-]+\s*=.*", re.DOTALL)
SPARK_SETTINGS = pattern(
    "`spark.KEY=VALUE;...` or nothing",
    lambda text: not text or all(_SPARK_SETTING.fullmatch(part) for part in text.split(";")),
)
PATH = pattern("a path", lambda text: bool(text) and text.isprintable())
FILE = optional(PATH)
