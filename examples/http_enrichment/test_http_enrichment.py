"""Each order is there once, with the customer that the server knows, though the server refuses every third request."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from customer_server import Handler, customer
from make_customer_orders import order

from tailrace.testing import MiniCluster

pytest_plugins = ["tailrace.testing.fixtures"]
HERE = Path(__file__).parent
COUNT = 300


@contextmanager
def serve() -> Iterator[str]:
    """Serves customers meanwhile, and returns the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/customers"
        finally:
            server.shutdown()
            thread.join()


def check_results(cluster: MiniCluster, folder: Path, partitions: int = 1) -> None:
    """Runs the project on a cluster, and compares what comes out with what the server knows."""
    del folder
    cluster.topic("customer-orders", partitions)
    enriched = cluster.topic("enriched-orders")
    cluster.run(HERE / "make_customer_orders.py", ["--count", str(COUNT)])
    with serve() as url:
        cluster.run(HERE / "http_enrichment.py", ["--bounded", "--url", url])
    expected: list[dict[str, object]] = []
    for each in map(order, range(COUNT)):
        known = customer(int(str(each["customer"])[1:])) or dict.fromkeys(("name", "city"))
        expected.append({"number": each["number"], "amount": each["amount"], **known})
    assert sorted(enriched.records(), key=lambda of: of["number"]) == expected


def test_each_order_has_its_customer(tailrace_cluster: MiniCluster, tmp_path: Path) -> None:
    check_results(tailrace_cluster, tmp_path)


def test_each_order_is_there_once_with_crashes(tmp_path: Path) -> None:
    for seed in range(2):
        with MiniCluster(seed=seed, crashes=2, parallelism=2) as cluster:
            check_results(cluster, tmp_path, partitions=2)
