"""PyFlink's datastream/process_json_data.py: records of a parsed document, which travel pickled."""

import json
from typing import Any

from tailrace import StreamExecutionEnvironment

DOCUMENTS = [
    (1, '{"name": "Ann", "tel": 123, "addr": {"country": "Norway", "city": "Oslo"}}'),
    (2, '{"name": "Bob", "tel": 135, "addr": {"country": "Chile", "city": "Arica"}}'),
    (3, '{"name": "Eve", "tel": 124, "addr": {"country": "Kenya", "city": "Nakuru"}}'),
    (4, '{"name": "Joe", "tel": 32, "addr": {"country": "Chile", "city": "Temuco"}}'),
]


def update_tel(data: tuple[int, str]) -> tuple[int, dict[str, Any]]:
    json_data = json.loads(data[1])
    json_data["tel"] += 1
    return data[0], json_data


def is_from_chile(data: tuple[int, dict[str, Any]]) -> bool:
    return "Chile" in data[1]["addr"]["country"]


def process_json_data() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    ds = env.from_collection(DOCUMENTS)
    ds.map(update_tel).filter(is_from_chile).print()
    env.execute()


if __name__ == "__main__":
    process_json_data()
