"""PyFlink's table/process_json_data_with_udf.py: a function of the program is a `map`, since SQL has none here."""

import json

from tailrace import StreamExecutionEnvironment

DOCUMENTS = [
    (1, '{"name": "Ann", "tel": 123, "addr": {"country": "Norway", "city": "Oslo"}}'),
    (2, '{"name": "Bob", "tel": 135, "addr": {"country": "Chile", "city": "Arica"}}'),
]


def update_tel(row: tuple[int, str]) -> tuple[int, str]:
    json_data = json.loads(row[1])
    json_data["tel"] += 1
    return row[0], json.dumps(json_data)


def process_json_data_with_udf() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(DOCUMENTS).map(update_tel).print()
    env.execute()


if __name__ == "__main__":
    process_json_data_with_udf()
