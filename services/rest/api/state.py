"""The states of roles: GET /api/v1/state."""

from __future__ import annotations

import fnmatch

from ...history.time_travel import ClusterMoment, cluster_moment
from ..endpoint import Endpoint, Parameter, Parameters
from ..moment import Moment

_ADDRESS = Parameter("address", str, "Only the states of these addresses: dispatcher, job_master/*.")


def state(moment: Moment, parameters: Parameters) -> ClusterMoment:
    """GET /state: the states of all roles as data, with their hashes, as `tailrace state -o json` prints them"""
    replica = moment.fold.replica
    wanted = parameters.get("address")
    if wanted is None:
        return cluster_moment(replica)
    return cluster_moment(replica, fnmatch.filter(replica.states, wanted))


READS = (Endpoint("GET", "/state", query=(_ADDRESS,), view=state),)
