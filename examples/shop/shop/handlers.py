"""What the shop does with a message. Plain functions: a test may call them."""

import sqlite3

import msgspec

import oncemq
from shop.mail import Mail

PRICE_CENTS = {"espresso": 220, "tea": 310}


class Order(msgspec.Struct, frozen=True):
    """What a guest wants."""

    number: int
    guest: str
    product: str
    cups: int


class Bill(msgspec.Struct, frozen=True):
    """What a guest owes."""

    order: int
    guest: str
    cents: int


class NotSold(Exception):
    """No retry will make us sell it."""


def take(order: Order, connection: sqlite3.Connection) -> None:
    """Take an order: the row, the stock and the bill to be sent are one transaction."""
    if order.product not in PRICE_CENTS:
        raise NotSold(order.product)
    connection.execute(
        "INSERT INTO orders VALUES (?, ?, ?, ?)",
        (order.number, order.guest, order.product, order.cups),
    )
    connection.execute(
        "UPDATE stock SET cups = cups - ? WHERE product = ?", (order.cups, order.product)
    )
    bill = Bill(order.number, order.guest, order.cups * PRICE_CENTS[order.product])
    oncemq.outbox(connection).put("bills", msgspec.json.encode(bill))


def send_bill(bill: Bill, message: oncemq.Message, mail: Mail) -> None:
    """Send a bill. A mail is in nobody's transaction: this may happen again after a crash, so the
    mail service is told the message's id, which stays the same."""
    text = f"Order {bill.order}: {bill.cents / 100:.2f} EUR"
    mail.send(bill.guest, text, key=message.id)
