"""Many clients, many messages, limits and interruptions, against the real server."""

import asyncio
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncemq import AsyncClient, Client, InvalidRequest, Message, StorageFull, Unreachable, testing
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.records import Retention
from oncemq.server import housekeeping
from oncemq.storage.log.log import LogOptions
from tests.e2e.processes import free_port, relay, until
from tests.integration.conftest import Connect

MEBIBYTE = 1 << 20


# ------------------------------------------------------------------ many clients


def test_each_of_24_subscribers_gets_everything_once_in_order_while_4_publishers_put(
    server: str, tmp_path: Path
) -> None:
    each = 400
    expected = 4 * each

    def publish(name: str) -> None:
        with Client(server, id=name, state=tmp_path / name) as publisher:
            for number in range(each):
                publisher.put("orders", b"%s:%d" % (name.encode(), number), wait=number % 50 == 0)

    def subscribe(subscriber: Client, limit: int) -> list[tuple[int, bytes]]:
        got: list[tuple[int, bytes]] = []
        with subscriber:
            while len(got) < expected:
                messages = subscriber.get("orders", limit=limit, wait=20)
                assert messages, "nothing came any more"
                got += [(message.offset, message.payload) for message in messages]
            assert subscriber.get("orders") == []
        return got

    subscribers = [Client(server, id=f"s{n}", state=tmp_path / f"s{n}") for n in range(24)]
    for subscriber in subscribers:
        subscriber.subscribe("orders")
    with ThreadPoolExecutor(28) as pool:
        reading = [
            pool.submit(subscribe, subscriber, 1 + 30 * n)
            for n, subscriber in enumerate(subscribers)
        ]
        for writing in [pool.submit(publish, f"p{n}") for n in range(4)]:
            writing.result()
        first, *others = [each.result() for each in reading]
    assert [offset for offset, _ in first] == list(range(expected))
    assert all(other == first for other in others)
    for name in (b"p0", b"p1", b"p2", b"p3"):
        numbers = [int(p.partition(b":")[2]) for _, p in first if p.startswith(name)]
        assert numbers == list(range(each))


def test_threads_that_share_a_client_put_everything_once(server: str, tmp_path: Path) -> None:
    with Client(server, id="shared", state=tmp_path / "shared") as mq:
        mq.subscribe("orders")

        def publish(thread: int) -> None:
            for number in range(50):
                mq.put("orders", b"%d:%d" % (thread, number))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(publish, range(8)))
        got = [message.payload for message in mq.get("orders", limit=1000)]
    assert sorted(got) == sorted(b"%d:%d" % (t, n) for t in range(8) for n in range(50))
    for thread in range(8):
        mine = [payload for payload in got if payload.startswith(b"%d:" % thread)]
        assert mine == [b"%d:%d" % (thread, number) for number in range(50)]


# ------------------------------------------------------------------ batches


def test_a_batch_is_put_and_got_in_one_request_each(server: str, connect: Connect) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    payloads = [b"%d" % number for number in range(5_000)]
    before = mq.counters["sends"]
    receipts = mq.put_many("orders", payloads)
    assert mq.counters["sends"] - before == 1
    assert len(receipts) == 5_000
    assert [receipt.offset for receipt in receipts] == list(range(5_000))
    assert (receipts[-1].id, receipts[10:12][1].id) == ("orders@4999", "orders@11")
    before = mq.counters["sends"]
    got = mq.get("orders", limit=5_000)
    assert mq.counters["sends"] - before == 1
    assert [message.payload for message in got] == payloads


def test_gets_of_any_size_give_at_most_their_limit_and_everything_in_order(
    server: str, connect: Connect
) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    for first in range(0, 100, 25):
        mq.put_many("orders", [b"%d" % number for number in range(first, first + 25)])
    got = mq.get("orders", limit=40)
    assert len(got) == 40
    for limit in [1, 7, 30] * 10:
        messages = mq.get("orders", limit=limit)
        assert len(messages) <= limit
        got += messages
    assert [message.offset for message in got] == list(range(100))
    assert [message.payload for message in got] == [b"%d" % number for number in range(100)]


def test_an_empty_batch_is_nothing_to_send(server: str, connect: Connect) -> None:
    mq = connect(server, "ada")
    mq.status()
    before = mq.counters["sends"]
    assert list(mq.put_many("orders", [])) == []
    assert mq.counters["sends"] == before
    assert mq.topics() == []


def test_puts_that_do_not_wait_leave_in_few_batches(server: str, tmp_path: Path) -> None:
    with Client(server, id="ada", state=tmp_path / "ada") as mq:
        mq.subscribe("orders")
        sends, requests = mq.counters["sends"], int(mq.status()["requests"])
        for number in range(10_000):
            mq.put("orders", b"%d" % number, wait=False)
        mq.flush()
        sends = mq.counters["sends"] - sends
        requests = int(mq.status()["requests"]) - requests
        assert sends < 1_000, f"{sends} requests for 10,000 messages"
        assert requests <= sends + 2
        got = [message.payload for message in all_of(mq, "orders")]
    assert got == [b"%d" % number for number in range(10_000)]


async def test_asyncio_puts_that_do_not_wait_leave_in_few_batches(
    server: str, tmp_path: Path
) -> None:
    async with AsyncClient(server, id="ada", state=tmp_path / "ada") as mq:
        await mq.create_topic("orders", Retention(forever=True))
        before = mq.counters["sends"]
        futures = [await mq.put("orders", b"%d" % n, wait=False) for n in range(10_000)]
        await mq.flush()
        assert mq.counters["sends"] - before < 1_000
        receipts = [await future for future in futures]  # type: ignore[misc]
    assert [receipt.offset for receipt in receipts] == list(range(10_000))


def all_of(mq: Client, topic: str) -> list[Message]:
    """Everything a subscription has to give."""
    got: list[Message] = []
    while messages := mq.get(topic, limit=10_000):
        got += messages
    return got


def test_gets_one_by_one_fetch_ahead(server: str, connect: Connect) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    mq.put_many("orders", [b"%d" % number for number in range(300)])
    before = mq.counters["sends"]
    got = [mq.get("orders")[0].payload for _ in range(300)]
    assert got == [b"%d" % number for number in range(300)]
    assert mq.counters["sends"] - before < 60


# ------------------------------------------------------------------ what a message may be


def test_keys_headers_unicode_and_empty_payloads_arrive_as_they_were_put(
    server: str, connect: Connect
) -> None:
    mq = connect(server, "ada")
    topic = "заказы/注文 ☕"
    mq.subscribe(topic)
    mq.put(topic, b"", key=b"")
    mq.put(topic, bytes(range(256)), key=b"\x00\xff", headers={"content-type": "x/y", "größe": "ö"})
    mq.put(topic, b"plain")
    mq.put_many(
        topic,
        [b"a", b"", b"c"],
        keys=[None, b"k", b""],
        headers=[{"h": ""}, None, {"": "v", "n": "1"}],
    )
    got = mq.get(topic, limit=10)
    assert [(m.payload, m.key, m.headers) for m in got] == [
        (b"", b"", {}),
        (bytes(range(256)), b"\x00\xff", {"content-type": "x/y", "größe": "ö"}),
        (b"plain", None, {}),
        (b"a", None, {"h": ""}),
        (b"", b"k", {}),
        (b"c", b"", {"": "v", "n": "1"}),
    ]
    assert [m.id for m in got] == [f"{topic}@{offset}" for offset in range(6)]
    stamps = [m.timestamp for m in got]
    assert stamps == sorted(stamps)


def test_gathered_puts_keep_their_own_keys_and_headers(server: str, connect: Connect) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    for number in range(30):
        key = b"%d" % number if number % 3 == 0 else None
        headers = {"n": str(number)} if number % 5 == 0 else None
        mq.put("orders", b"%d" % number, key=key, headers=headers, wait=False)
    mq.flush()
    for number, message in enumerate(mq.get("orders", limit=100)):
        assert message.payload == b"%d" % number
        assert message.key == (b"%d" % number if number % 3 == 0 else None)
        assert message.headers == ({"n": str(number)} if number % 5 == 0 else {})


def test_a_payload_of_16_mib_is_taken_and_a_byte_more_is_refused(
    server: str, connect: Connect
) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    largest = bytes(range(256)) * (16 * MEBIBYTE // 256)
    assert mq.put("orders", largest).stored
    assert mq.get("orders")[0].payload == largest
    with pytest.raises(InvalidRequest) as refused:
        mq.put("orders", largest + b"x")
    assert refused.value.code == "too_large"
    assert str(16 * MEBIBYTE) in refused.value.detail
    assert mq.put("orders", b"goes on").offset == 1


@pytest.mark.parametrize("payload", ["text", 7, None, ["list"]])
def test_a_payload_that_is_not_bytes_is_a_mistake_of_the_caller(
    server: str, connect: Connect, payload: Any
) -> None:
    mq = connect(server, "ada")
    with pytest.raises(TypeError):
        mq.put("orders", payload)
    with pytest.raises(TypeError):
        mq.put_many("orders", [b"fine", payload])
    with pytest.raises(TypeError):
        mq.put("orders", payload, wait=False)
    mq.subscribe("orders")
    assert mq.put("orders", b"bytes").offset == 0


# ------------------------------------------------------------------ several addresses


def test_with_several_addresses_the_first_that_answers_is_used(
    server: str, connect: Connect
) -> None:
    dead = f"tcp://127.0.0.1:{free_port()}"
    mq = connect(f"{dead},{server}", "ada")
    assert mq.subscribe("orders") is True
    assert mq.put("orders", b"one").offset == 0
    assert [message.payload for message in mq.get("orders")] == [b"one"]


def test_an_address_that_accepts_and_never_answers_is_left_for_the_next(
    server: str, connect: Connect
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mq = connect([f"tcp://127.0.0.1:{mute.getsockname()[1]}", server], "ada")
        mq.subscribe("orders")
        assert mq.put("orders", b"one").stored


def test_when_no_address_answers_the_error_names_them_all(connect: Connect) -> None:
    addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    mq = connect(addresses, timeout=0.3)
    with pytest.raises(Unreachable) as unreachable:
        mq.topics()
    assert all(address in unreachable.value.detail for address in addresses)


# ------------------------------------------------------------------ promises about the disk


def test_with_interval_sync_receipts_and_status_say_what_is_at_risk(connect: Connect) -> None:
    with testing.server(rules=ServerLimits(sync_ms=40), options=LogOptions(sync_ms=40)) as address:
        mq = connect(address, "ada")
        mq.subscribe("orders")
        receipts = [mq.put("orders", b"one"), *mq.put_many("orders", [b"two", b"three"])]
        assert [receipt.at_risk_ms for receipt in receipts] == [40, 40, 40]
        status = mq.status()
        assert status["sync"] == "interval 40 ms"
        assert "40 ms" in str(status["sync_gives_up"])
        assert len(mq.get("orders", limit=10)) == 3
        mq.close()


def test_by_default_nothing_acknowledged_is_at_risk(server: str, connect: Connect) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    assert mq.put("orders", b"one").at_risk_ms == 0
    status = mq.status()
    assert status["sync"] == "always"
    assert str(status["sync_gives_up"]).startswith("nothing")


DISK = MEBIBYTE
SMALL = LogOptions(
    segment_bytes=256 << 10,
    allocate_bytes=64 << 10,
    reserve_bytes=64 << 10,
    checkpoint_bytes=128 << 10,
    disk_bytes_max=DISK,
)


def fill(mq: Any, topic: str, payload: bytes) -> int:
    """Puts until the disk is full; how many were stored."""
    stored = 0

    def put_on() -> None:
        nonlocal stored
        while stored < 10_000:
            mq.put(topic, payload)
            stored += 1

    with pytest.raises(StorageFull) as full:
        put_on()
    assert full.value.code == "storage_full"
    assert "nothing was stored" in full.value.detail
    return stored


@pytest.fixture
def busy_janitor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small disks are tidied every 20 ms instead of every second."""
    monkeypatch.setattr(housekeeping, "UPKEEP_MICROS", 20_000)


def test_a_full_disk_refuses_puts_gives_messages_and_goes_on_by_itself_when_there_is_room(
    connect: Connect,
) -> None:
    with testing.server(options=SMALL) as address:
        mq, other = connect(address, "ada"), connect(address, "bob")
        mq.subscribe("orders")
        payload = b"x" * 10_000
        stored = fill(mq, "orders", payload)
        assert 20 < stored < 105
        with pytest.raises(StorageFull):  # for everyone, on any topic
            other.put_many("elsewhere", [payload])
        with pytest.raises(StorageFull):
            mq.put("orders", payload)
        got = 0
        while got < stored:  # gets go on
            messages = mq.get("orders", limit=10)
            assert all(message.payload == payload for message in messages)
            assert messages, f"{got} of {stored} messages were given"
            got += len(messages)
        assert mq.get("orders") == []

        def has_room() -> bool:
            mq.get("orders")  # tells what is settled
            try:
                return mq.put("orders", b"room again").stored
            except StorageFull:
                return False

        until(has_room, what="settled messages make room")
        assert [message.payload for message in mq.get("orders")] == [b"room again"]
        for client in (mq, other):
            client.close()


@pytest.mark.usefixtures("busy_janitor")
def test_what_every_subscription_has_settled_is_freed(tmp_path: Path) -> None:
    """Twice the disk goes through, because what is settled makes room."""
    with (
        testing.server(options=SMALL) as address,
        Client(address, id="ada", state=tmp_path / "ada") as mq,
    ):
        mq.subscribe("orders")
        sent = 0
        deadline = time.monotonic() + 30
        while sent < 2 * DISK:
            try:
                mq.put_many("orders", [b"x" * 10_000] * 5)
                sent += 50_000
            except StorageFull:
                assert time.monotonic() < deadline, f"no room any more after {sent} bytes"
            mq.get("orders", limit=5)
        assert int(mq.status()["disk_bytes"]) <= DISK


@pytest.mark.usefixtures("busy_janitor")
def test_retention_by_size_keeps_the_newest_and_lets_go_of_the_oldest(connect: Connect) -> None:
    options = LogOptions(segment_bytes=128 << 10, allocate_bytes=32 << 10, reserve_bytes=32 << 10)
    with testing.server(options=options) as address:
        mq = connect(address, "ada")
        mq.create_topic("kept", Retention(keep_bytes=300_000))
        for number in range(200):
            mq.put("kept", b"%04d" % number + b"x" * 5_000)

        def oldest() -> Message | None:
            low = mq.topic("kept").topic.low
            try:
                return mq.read("kept", low, limit=1)[0] if low > 0 else None
            except InvalidRequest:
                return None  # it moved on in between

        kept = until(oldest, what="retention lets go")
        assert kept is not None
        assert kept.payload.startswith(b"%04d" % kept.offset)
        shown = mq.topic("kept").topic
        assert shown.end == 200
        # What is stored counts, a frame's head included: under 200 bytes for each put.
        assert (200 - shown.low) * (5_004 + 200) >= 300_000, "less is kept than was asked for"
        with pytest.raises(InvalidRequest) as refused:
            mq.read("kept", 0)
        assert refused.value.code == "offset_out_of_range"
        mq.close()


def test_a_topic_that_keeps_forever_is_read_from_the_start_by_who_comes_late(
    server: str, connect: Connect
) -> None:
    mq = connect(server, "ada")
    mq.create_topic("kept", Retention(forever=True))
    assert mq.put_many("kept", [b"one", b"two", b"three"])[0].stored
    assert "forever" in mq.topic("kept").kept_because
    mq.subscribe("kept", start="earliest")
    assert [message.payload for message in mq.get("kept", limit=10)] == [b"one", b"two", b"three"]
    late = connect(server, "late")
    late.subscribe("kept", start=1)
    assert [message.payload for message in late.get("kept", limit=10)] == [b"two", b"three"]


# ------------------------------------------------------------------ closing


def test_close_sends_what_is_unsent_and_tells_what_is_settled(
    server: str, connect: Connect
) -> None:
    subscriber = connect(server, "ada")
    subscriber.subscribe("orders")
    for name in ("with state", None):
        publisher = connect(server, name)
        for number in range(500):
            publisher.put("orders", b"%d" % number, wait=False)
        publisher.close()
    got = subscriber.get("orders", limit=2_000)
    assert [message.payload for message in got] == [b"%d" % n for n in range(500)] * 2
    subscriber.close()
    (subscription,) = connect(server).subscriptions("orders")
    assert subscription.cursor == 1_000


def test_a_closed_client_says_so_and_may_be_closed_again(server: str, connect: Connect) -> None:
    mq = connect(server, "ada")
    mq.subscribe("orders")
    mq.close()
    mq.close()


# ------------------------------------------------------------------ interruptions


class Interrupted(BaseException):
    """What a signal handler raises, as Ctrl-C does."""


@contextmanager
def interrupting() -> Iterator[Callable[[], None]]:
    """A function that makes the main thread raise, from any thread."""

    def handle(_number: int, _frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    main = threading.main_thread().ident
    assert main is not None
    try:
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, ended_by(before))


def ended_by(before: Any) -> Any:
    """The handler to go back to: one that is on its way would end the process by default."""
    return signal.SIG_IGN if before is signal.SIG_DFL else before


@pytest.fixture
def mq(server: str, tmp_path: Path) -> Iterator[Client]:
    with Client(server, id="ada", state=tmp_path / "ada", timeout=20) as mq:
        mq.subscribe("orders")
        yield mq


def when(ready: Callable[[], object], act: Callable[[], None]) -> threading.Thread:
    """Another thread that acts as soon as something is so."""

    def run() -> None:
        until(ready)
        act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_get_that_is_interrupted_leaves_the_client_usable(server: str, mq: Client) -> None:
    with interrupting() as interrupt, Client(server) as watcher:
        for round in range(10):
            thread = when(lambda: watcher.status()["waiting"] == 1, interrupt)
            with pytest.raises(Interrupted):
                mq.get("orders", wait=20)
            thread.join()
            mq.put("orders", b"%d" % round)
            assert [message.payload for message in mq.get("orders")] == [b"%d" % round]


def test_a_put_that_is_interrupted_is_stored_once_and_the_client_stays_usable(
    server: str, tmp_path: Path, mq: Client
) -> None:
    with (
        relay(server) as wire,
        interrupting() as interrupt,
        Client(wire.address, id="press", state=tmp_path / "press", timeout=20) as publisher,
    ):
        publisher.status()
        for round in range(5):
            wire.hold_answers()
            end = 2 * round + 1
            thread = when(lambda end=end: mq.topic("orders").topic.end == end, interrupt)
            with pytest.raises(Interrupted):
                publisher.put("orders", b"interrupted %d" % round)
            thread.join()
            assert publisher.unsent == 1
            wire.cut()
            assert publisher.put("orders", b"after %d" % round).offset == end
    got = [message.payload for message in mq.get("orders", limit=100)]
    assert got == [b"%s %d" % (w, n) for n in range(5) for w in (b"interrupted", b"after")]


class Disturbance:
    """Interrupts come every few milliseconds, wherever the main thread is, while `armed`.

    One that is raised disarms; so none can come where nobody expects it.
    """

    def __init__(self) -> None:
        self.armed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._disturb)
        self._main = threading.main_thread().ident or 0

    def __enter__(self) -> "Disturbance":
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.armed = False
        self._ended.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, ended_by(self._before))

    def _handle(self, _number: int, _frame: object) -> None:
        if self.armed:
            self.armed = False
            raise Interrupted

    def _disturb(self) -> None:
        chance = random.Random(7)
        while not self._ended.wait(chance.uniform(0.0003, 0.004)):
            signal.pthread_kill(self._main, signal.SIGUSR1)


def test_interrupts_at_any_moment_lose_and_double_nothing(server: str, mq: Client) -> None:
    applied: list[bytes] = []
    interrupts = number = 0
    deadline = time.monotonic() + 3
    with Disturbance() as disturbance:
        while time.monotonic() < deadline:
            try:
                disturbance.armed = True
                while time.monotonic() < deadline:
                    number += 1
                    mq.put("orders", b"%d" % number, wait=number % 4 > 0)
                    with mq.consume("orders", wait=0) as messages:
                        applied += [message.payload for message in messages]
                disturbance.armed = False
            except Interrupted:
                interrupts += 1
    mq.flush()
    applied += [message.payload for message in all_of(mq, "orders")]
    assert interrupts > 50
    once = [int(payload) for payload in dict.fromkeys(applied)]  # a block cut short comes again
    assert once == sorted(once)
    assert len(once) == mq.topic("orders").topic.end, "something stored was never given"
    assert mq.put("orders", b"last").stored


def test_an_interrupt_of_listen_gives_the_rest_again(mq: Client) -> None:
    mq.put_many("orders", [b"%d" % number for number in range(10)])
    got: list[bytes] = []
    for message in mq.listen("orders"):
        got.append(message.payload)
        if len(got) == 4:
            break
    got += [message.payload for message in mq.get("orders", limit=100)]
    # The fourth was not settled: nobody asked for the one after it.
    assert got == [b"0", b"1", b"2", b"3", *(b"%d" % number for number in range(3, 10))]


def test_handlers_of_signals_are_put_back_and_run_once(mq: Client) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, _frame: heard.append(number))
    handler = signal.getsignal(signal.SIGUSR2)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        thread = when(lambda: True, lambda: signal.raise_signal(signal.SIGUSR2))
        assert mq.get("orders", wait=0.3) == []
        thread.join()
        assert heard == [signal.SIGUSR2]
        assert signal.getsignal(signal.SIGUSR2) is handler
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.signal(signal.SIGUSR2, before)


async def test_closing_an_asyncio_client_ends_what_waits_on_it(server: str, tmp_path: Path) -> None:
    with relay(server) as wire:
        mq = AsyncClient(wire.address, id="ada", state=tmp_path / "ada", timeout=30)
        await mq.subscribe("orders")
        waits = asyncio.ensure_future(mq.get("orders", wait=30))
        wire.refuse()
        receipt = await mq.put("orders", b"recorded", wait=False)
        assert isinstance(receipt, asyncio.Future)
        await asyncio.sleep(0)
        await mq.__aexit__(ZeroDivisionError, None, None)  # a block that raised waits for nobody
        await asyncio.wait([waits, receipt], timeout=5)
        for left in (waits, receipt):
            assert isinstance(left.exception(), Unreachable)


def test_closing_a_client_ends_what_waits_on_it_in_other_threads(mq: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(mq.get, "orders", wait=30)
        until(lambda: mq.status()["waiting"] == 1, what="the get waits")
        mq.close()
        with pytest.raises(Unreachable, match="closed"):
            waits.result(5)
