"""A cluster whose processes all run on this machine: start, status and stop.

The names are imported at first use, because every command needs the cluster record, but few need the cluster.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cluster import LocalCluster, LocalClusterOptions
    from .cluster_record import ClusterRecord, ProcessRecord, read_record

__all__ = ["ClusterRecord", "LocalCluster", "LocalClusterOptions", "ProcessRecord", "read_record"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("LocalCluster", "LocalClusterOptions"):
        from . import cluster

        return getattr(cluster, name)
    from . import cluster_record

    return getattr(cluster_record, name)
