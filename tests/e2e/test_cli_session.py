"""The first five minutes: one session of each kind, fast enough for every check."""

import re

from .conftest import Once


def test_a_newcomer_subscribes_puts_and_gets(once: Once, topic: str) -> None:
    subscribed = once("subscribe", topic)
    assert subscribed.code == 0
    assert re.fullmatch(rf"ada@\S+ is subscribed to '{topic}'\n", subscribed.text)
    assert once("put", topic, "hi").text == f"{topic}@0\n"
    assert once("get", topic).text == "hi\n"
    assert once("get", topic).code == 4
