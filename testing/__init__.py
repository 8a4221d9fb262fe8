"""For the tests of programs: jobs in one process, without servers, with Kafka topics in memory and a clock that the
test moves. docs/test-your-program.md describes it.

    from tailrace.testing import MiniCluster

    with MiniCluster() as cluster:
        ...

Fixtures of pytest are in `tailrace.testing.fixtures`.
"""

from ..pipelines.api import JobFailedError
from ..pipelines.testing.contract import ContractBroken
from ..pipelines.testing.harness import HarnessSnapshot, StreamHarness
from ..pipelines.testing.job import MiniJob
from ..pipelines.testing.mini_cluster import MiniCluster
from ..pipelines.testing.sink_contract import check_sink
from ..pipelines.testing.source_contract import check_source
from ..pipelines.testing.topic import Topic, TopicMessage

__all__ = [
    "ContractBroken",
    "HarnessSnapshot",
    "JobFailedError",
    "MiniCluster",
    "MiniJob",
    "StreamHarness",
    "Topic",
    "TopicMessage",
    "check_sink",
    "check_source",
]
