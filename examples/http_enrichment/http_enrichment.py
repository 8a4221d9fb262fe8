"""Puts the customer beside each order, by requests to an HTTP server: many at a time, each answer kept for a while.

tailrace run examples/http_enrichment/http_enrichment.py --url http://localhost:8080/customers
"""

import asyncio
import json
import urllib.error
import urllib.request
from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

import tailrace as tr


@dataclass(frozen=True)
class Order:
    number: int
    customer: str
    amount: int


@dataclass(frozen=True)
class Customer:
    name: str
    city: str


class CustomerServer:
    """Asks for customers. urllib blocks, so each request has a thread; with many of them, use a client for asyncio."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def __call__(self, customer: str) -> Customer | None:
        return await asyncio.to_thread(self.get, customer)

    def get(self, customer: str) -> Customer | None:
        """Returns a customer; None if the server knows none of that id. Raises OSError."""
        try:
            with urllib.request.urlopen(f"{self.url}/{customer}", timeout=5) as answer:
                return Customer(**json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise


def to_json(pair: tuple[Order, Customer | None]) -> dict[str, object]:
    """Returns the enriched order."""
    order, customer = pair
    return {
        "number": order.number,
        "amount": order.amount,
        "name": None if customer is None else customer.name,
        "city": None if customer is None else customer.city,
    }


def main() -> None:
    parser = ArgumentParser("http_enrichment", description="Puts the customer beside each order.")
    parser.add_argument("--url", required=True, help="the server; the id of a customer follows it")
    parser.add_argument("--orders", default="customer-orders", help="a topic of orders as JSON")
    parser.add_argument("--enriched", default="enriched-orders", help="a topic")
    parser.add_argument("--bounded", action="store_true", help="end at the present end of the topic")
    options = parser.parse_args()
    env = tr.StreamExecutionEnvironment.get_execution_environment()
    source = tr.KafkaSource(options.orders, tr.Formats.json(), bounded=options.bounded, output_type=Order)
    enriched = env.from_source(source, name="Orders").lookup_join(
        CustomerServer(options.url),
        "customer",
        cache=tr.LookupCache(size=10_000, ttl=timedelta(minutes=10)),
        retry=tr.ExponentialBackoffDelayRetryStrategy(
            max_attempts=5,
            initial_delay=timedelta(milliseconds=50),
            max_delay=timedelta(seconds=2),
            multiplier=2,
        ),
        value_type=Customer,
    )
    enriched.name("Customers").map(to_json, output_type=dict).sink_to(
        tr.KafkaSink(options.enriched, tr.Formats.json(), key=lambda order: str(order["number"]))
    )
    env.execute("Enrichment by HTTP")


if __name__ == "__main__":
    main()
