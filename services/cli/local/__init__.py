"""A cluster whose processes all run on this machine: how it is started, looked at and stopped."""

from .cluster import LocalCluster, Options
from .record import ClusterRecord, ProcessRecord, read_record

__all__ = ["ClusterRecord", "LocalCluster", "Options", "ProcessRecord", "read_record"]
