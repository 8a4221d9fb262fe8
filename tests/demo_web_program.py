"""Orders, their value by country in windows, and large ones by customer: a job to look at, with a failure now and then.

A failure is random, so the attempt that reads the same records again mostly goes on.
"""

import random
from dataclasses import dataclass

import tailrace as tr

_COUNTRIES = ("DE", "FR", "IT", "PL", "ES")
_FAILURES_PER_ORDER = 1 / 60_000


@dataclass(frozen=True)
class Order:
    country: str
    customer: int
    value: float


def order(number: int) -> Order:
    return Order(_COUNTRIES[number % len(_COUNTRIES)], number % 1_000, float(number % 97))


def check(given: Order) -> Order:
    if random.random() < _FAILURES_PER_ORDER:
        raise ValueError(f"the order of customer {given.customer} has no address")
    return given


def together(one: Order, other: Order) -> Order:
    return Order(one.country, one.customer, one.value + other.value)


env = tr.StreamExecutionEnvironment.get_execution_environment()
orders = env.generate(order, count=1_000_000_000, rate_per_second=400.0).rebalance().map(check)
by_country = orders.key_by("country").window(tr.TumblingProcessingTimeWindows.of(seconds=5))
by_country.reduce(together).print()
large = orders.filter(lambda each: each.value > 90)
large.key_by("customer").reduce(together).print()
env.execute("Orders")
