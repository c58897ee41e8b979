"""A server whose files may not grow further (`ulimit -f`) is full, and not broken."""

from tests.integration.lone import alone

LIMITED = """
import resource
import oncemq.testing
from oncemq import Client, OnceMQError

resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
stored = 0
with oncemq.testing.server() as address, Client(address, timeout=10) as mq:
    mq.subscribe("orders")
    try:
        while True:
            mq.put("orders", b"x" * 200_000)
            stored += 1
    except OnceMQError as error:
        print(error.code)
    print(stored == len(mq.get("orders", limit=100)) > 5)
"""


def test_a_server_whose_segment_may_not_grow_refuses_puts_and_serves_on() -> None:
    assert alone(LIMITED) == ["storage_full", "True"]
