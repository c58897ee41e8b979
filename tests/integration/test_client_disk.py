"""The disk under a client's outbox fails: nobody is told yes, and no thread or loop dies of it."""

import errno
from contextlib import suppress
from typing import Any

import pytest

from oncemq import Client, OnceMQError, StorageFull, StorageRefused, StorageUnsure
from oncemq.client.state.journal import Journal
from oncemq.protocol.records import Retention


class Failing:
    """The outbox's file; one of its calls fails once."""

    def __init__(self, file: Any, call: str, error: int) -> None:
        self._file, self._call, self._error = file, call, error

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            self._call = ""
            raise OSError(self._error, "planned")
        return getattr(self._file, name)


def break_disk(client: Any, call: str, error: int = errno.EIO) -> None:
    inner = getattr(client, "_client", client)
    current = inner._engine.state.slots[0]._log._current
    current.file = Failing(current.file, call, error)


@pytest.fixture
def admin(server: str):
    with Client(server) as admin:
        admin.create_topic("orders", Retention(forever=True))
        yield admin


@pytest.mark.parametrize("call", ["write", "sync"])
def test_flush_never_says_yes_to_puts_that_are_gone(server, connect, admin, call) -> None:
    client = connect(server, "shop")
    client.put("orders", b"before")
    break_disk(client, call)
    for number in range(10):
        with suppress(StorageRefused):  # the first were recorded meanwhile, in vain
            client.put("orders", b"%d" % number, wait=False)
    with pytest.raises(StorageRefused, match="disk of this client failed"):
        client.flush()
    with pytest.raises(StorageRefused, match="close the client"):
        client.put("orders", b"later")
    client.close()
    again = connect(server, "shop")
    again.flush()
    stored = [message.payload for message in admin.read("orders", 0)]
    assert len(stored) == len(set(stored))
    assert stored[0] == b"before"
    assert b"later" not in stored
    again.close()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_put_whose_record_failed_says_that_it_may_be_sent_later(
    server, connect, admin, call
) -> None:
    client = connect(server, "shop")
    client.put("orders", b"before")
    break_disk(client, call)
    with pytest.raises(StorageUnsure, match="the next start may send it, or not have it"):
        client.put("orders", b"unsure")
    client.close()
    again = connect(server, "shop")  # the slot was given free
    again.flush()
    assert admin.read("orders", 0)[0].payload == b"before"
    assert [m.payload for m in admin.read("orders", 1)] in ([], [b"unsure"])
    again.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_refuses_a_put_and_the_next_one_is_taken(server, connect, admin, error) -> None:
    client = connect(server, "shop")
    client.put("orders", b"before")
    break_disk(client, "allocate", error)
    with pytest.raises(StorageFull, match="make room"):
        client.put("orders", b"x" * (2 << 20))
    client.put("orders", b"after")
    assert [m.payload for m in admin.read("orders", 0)] == [b"before", b"after"]
    client.close()


def test_an_error_nobody_thought_of_reaches_whoever_asks(server, connect, admin) -> None:
    """It is met by a thread, or a callback, that nobody waits for."""
    client = connect(server, "shop")
    client.put("orders", b"before")
    inner = getattr(client, "_client", client)

    def breaks(puts: object) -> None:
        raise ZeroDivisionError("a bug")

    inner._engine.state.slots[0].record = breaks
    pending = client.put("orders", b"never", wait=False)
    with pytest.raises((OnceMQError, ZeroDivisionError), match="a bug"):
        client.flush()
    assert pending.done()
    with suppress(OnceMQError):
        client.close()


@pytest.mark.parametrize("call", ["claim", "granted"])
def test_a_disk_that_was_full_while_the_client_was_let_in_is_forgotten_once_it_has_room(
    server, connect, admin, call, monkeypatch
) -> None:
    """The same with both clients: no verb waits in vain for good, and none has to be repeated."""
    connect(server, "shop").close()
    original, calls = getattr(Journal, call), []

    def full_at_first(self: Journal, *args: Any) -> Any:
        calls.append(call)
        if len(calls) == 1:
            raise StorageFull("the disk of this client is full: state.db could not be written")
        return original(self, *args)

    monkeypatch.setattr(Journal, call, full_at_first)
    shop = connect(server, "shop")
    assert shop.put("orders", b"a").offset == 0
    assert shop.subscribe("orders") is True
    assert len(calls) == 2
    shop.close()
