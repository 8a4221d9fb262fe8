"""Adds the names of customers to orders, in whichever order they arrive: two Kafka topics of JSON into a third.

tailrace run pipelines/examples/enrichment.py --orders orders --customers customers --output named
"""

from argparse import ArgumentParser
from typing import Any

import tailrace as tr

parser = ArgumentParser("enrichment", description="Orders with the names of their customers.")
for topic in ("orders", "customers", "output"):
    parser.add_argument(f"--{topic}", required=True, help="a topic")
options = parser.parse_args()


class WithName(tr.KeyedCoProcessFunction[str, Any, Any, Any]):
    def open(self, context: tr.RuntimeContext) -> None:
        self.name = context.get_state(tr.ValueStateDescriptor[str]("name", str))
        self.waiting = context.get_list_state(tr.ListStateDescriptor[Any]("waiting"))

    def process_element1(self, value: Any, context: tr.KeyedContext[str]) -> Any:
        if name := self.name.value():
            yield {**value, "name": name}
        else:
            self.waiting.add(value)

    def process_element2(self, value: Any, context: tr.KeyedContext[str]) -> Any:
        self.name.update(value["name"])
        yield from ({**order, "name": value["name"]} for order in self.waiting)
        self.waiting.clear()


env = tr.StreamExecutionEnvironment.get_execution_environment()
orders = env.from_source(tr.KafkaSource(options.orders, tr.Formats.json()))
customers = env.from_source(tr.KafkaSource(options.customers, tr.Formats.json()))
both = orders.connect(customers).key_by(lambda order: order["customer"], lambda customer: customer["id"])
both.process(WithName()).sink_to(tr.KafkaSink(options.output))
env.execute("Enrichment")
