"""What a process is told at its start: defaults, then the environment (`TAILRACE_...`), then the command line."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ...schemas.ids import is_id


class Configuration(BaseSettings):
    """Settings of one process; the same for every process of a cluster but `resource_id` and `task_slots`.

    Raises pydantic.ValidationError for impossible values.
    """

    model_config = SettingsConfigDict(env_prefix="TAILRACE_", frozen=True, extra="forbid")

    cluster_id: str = Field("tailrace", description="prefix of the cluster's topics")
    bootstrap_servers: str = Field("", description="Kafka, host:port,...; empty: the embedded one")
    schema_registry_url: str = Field("", description="empty: events are written in single-object encoding")
    home: Path = Field(Path(".tailrace"), description="where local processes keep data, logs and pid files")
    task_slots: int = Field(2, ge=1, le=1024, description="slots that a TaskExecutor offers")
    slot_request_timeout_s: float = Field(10.0, gt=0, description="how long a job waits for its slots")

    @field_validator("cluster_id")
    @classmethod
    def _is_id(cls, value: str) -> str:
        if not is_id(value):
            raise ValueError("1 to 64 letters, digits, '-' or '_' make a cluster id")
        return value
