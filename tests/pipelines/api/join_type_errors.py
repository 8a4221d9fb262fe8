"""Mistakes in joins that mypy finds in a user's program. `make lint` checks this file, and fails for an ignored error
that mypy does not report any more; nothing is run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace import DataStream, ProcessJoinContext, ProcessJoinFunction, TumblingEventTimeWindows


@dataclass(frozen=True)
class Order:
    user: str
    amount: int


@dataclass(frozen=True)
class Payment:
    user: str
    paid: int


class Swapped(ProcessJoinFunction[Payment, Order, str]):
    def process_element(self, left: Payment, right: Order, context: ProcessJoinContext) -> Iterable[str]:
        yield left.user


def user_of(order: Order) -> str:
    return order.user


def payer_of(payment: Payment) -> str:
    return payment.user


def paid_of(payment: Payment) -> int:
    return payment.paid


def mistakes(orders: DataStream[Order], payments: DataStream[Payment]) -> None:
    windows = TumblingEventTimeWindows.of(seconds=1)
    orders.join(payments).where(payer_of)  # type: ignore[arg-type]
    orders.join(payments).where(user_of).equal_to(paid_of)  # type: ignore[arg-type]
    pairs = orders.join(payments).where(user_of).equal_to(payer_of).window(windows)
    pairs.apply(lambda order, payment: order.paid)  # type: ignore[attr-defined]
    pairs.apply(lambda order, payment: payment.paid).map(lambda paid: paid.user)  # type: ignore[attr-defined]
    x, y = orders.key_by(user_of), payments.key_by(payer_of)
    x.interval_join(y).between(upper_seconds=1).process(Swapped())  # type: ignore[arg-type]
    x.interval_join(payments.key_by(paid_of))  # type: ignore[arg-type]
    orders.interval_join(y)  # type: ignore[attr-defined]
    x.temporal_join(y).apply(lambda order, payment: payment.paid)
    x.temporal_join(y, "left").apply(lambda order, payment: payment.paid)  # type: ignore[union-attr]
    x.temporal_join(y, "outer")  # type: ignore[call-overload]
