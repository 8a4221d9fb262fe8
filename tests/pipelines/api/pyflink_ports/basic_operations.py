"""PyFlink's datastream/basic_operations.py: one environment executes three jobs of one stream."""

import json
from typing import Any, NamedTuple

from tailrace import DataStream, StreamExecutionEnvironment


class Person(NamedTuple):
    id: int
    info: str


PEOPLE = [
    Person(1, '{"name": "Ann", "tel": 123, "addr": {"country": "Norway", "city": "Oslo"}}'),
    Person(2, '{"name": "Bob", "tel": 135, "addr": {"country": "Chile", "city": "Arica"}}'),
    Person(3, '{"name": "Eve", "tel": 124, "addr": {"country": "Kenya", "city": "Nakuru"}}'),
    Person(4, '{"name": "Joe", "tel": 32, "addr": {"country": "Chile", "city": "Temuco"}}'),
]


def show(ds: DataStream[Any], env: StreamExecutionEnvironment) -> None:
    ds.print()
    env.execute()


def update_tel(data: Person) -> tuple[int, str]:
    json_data = json.loads(data.info)
    json_data["tel"] += 1
    return data.id, json.dumps(json_data)


def country_and_tel(data: Person) -> tuple[str, int]:
    return json.loads(data.info)["addr"]["country"], json.loads(data.info)["tel"]


def basic_operations() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    ds = env.from_collection(PEOPLE)

    show(ds.map(update_tel), env)
    show(ds.filter(lambda data: data.id == 1).map(update_tel), env)
    show(
        ds.map(country_and_tel).key_by(lambda data: data[0]).reduce(lambda a, b: (a[0], a[1] + b[1])),
        env,
    )


if __name__ == "__main__":
    basic_operations()
