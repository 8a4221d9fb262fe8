"""PyFlink's datastream/connectors/elasticsearch.py: the server's `_bulk` requests by an HttpSink."""

import argparse
import json
from datetime import timedelta

from tailrace import FixedDelayRetryStrategy, HttpSink, StreamExecutionEnvironment

Document = dict[str, str]
DOCUMENTS: list[Document] = [{"name": "ann", "id": "1"}, {"name": "bob", "id": "2"}]


def bulk(index: str, documents: list[Document]) -> bytes:
    lines = ""
    for document in documents:
        action = {"index": {"_index": index, "_id": document["id"]}}
        lines += f"{json.dumps(action)}\n{json.dumps(document)}\n"
    return lines.encode()


def with_static_index(documents: list[Document]) -> bytes:
    return bulk("foo", documents)


def with_dynamic_index(documents: list[Document]) -> bytes:
    return b"".join(bulk(document["name"], [document]) for document in documents)


def write(env: StreamExecutionEnvironment, host: str, index: str) -> None:
    ds = env.from_collection(DOCUMENTS)
    es_sink = HttpSink(
        f"{host}/_bulk",
        headers={"Content-Type": "application/x-ndjson"},
        body=with_static_index if index == "static" else with_dynamic_index,
        batch_size=1,
        linger=timedelta(seconds=1),
        retry=FixedDelayRetryStrategy(max_attempts=4, delay=timedelta(seconds=3)),
        timeout=timedelta(seconds=30),
    )
    ds.sink_to(es_sink).name(f"es {index} index sink")
    env.execute()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="http://localhost:9200")
    arguments = parser.parse_args()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    write(env, arguments.host, "static")
    write(env, arguments.host, "dynamic")
