"""Two clients with one id, a copy of a client's state, the state of somebody else.

The newer wins; the older learns it at its next word, and at once while it waits. A restored copy
is turned away before it has done anything.
"""

import asyncio
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncemq import (
    AsyncClient,
    Client,
    Fenced,
    HistoryLost,
    InvalidRequest,
    StaleState,
    Unreachable,
    testing,
)
from oncemq.client.admin.accepting import ClientFiles
from oncemq.errors import StorageRefused
from tests.e2e.processes import Nursery, Process, Serving, relay, running_nursery, until


@pytest.fixture
def server() -> Iterator[str]:
    with testing.server() as address:
        yield address


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with running_nursery() as nursery:
        yield nursery


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def watcher(server: str) -> Iterator[Client]:
    """Reads what is stored; the topic keeps everything."""
    with Client(server, timeout=20) as watcher:
        watcher.subscribe("orders")
        yield watcher


def ada(server: str, state: Path, **options: Any) -> Client:
    return Client(server, id="ada", state=state, timeout=20, **options)


def waiting_process(nursery: Nursery, tmp_path: Path, server: str, state: Path) -> Process:
    """The same client in another process, in the middle of a get."""
    process = nursery.start(
        "hold", "twin", tmp_path, server=server, id="ada", state=str(state), topic="orders"
    )
    process.noted("in")
    return process


# ------------------------------------------------------------------ twins


@pytest.mark.parametrize("verb", ["put", "get", "subscribe", "unsubscribe", "consume"])
def test_the_older_of_two_clients_is_fenced_at_its_next_word(
    server: str, state: Path, watcher: Client, verb: str
) -> None:
    older = ada(server, state)
    older.subscribe("orders")
    older.put("orders", b"from the older")
    with ada(server, state) as newer:
        assert newer.put("orders", b"from the newer").stored
        with pytest.raises(Fenced) as fenced:
            speak(older, verb)
        assert fenced.value.code == "fenced"
        assert "'ada'" in fenced.value.detail
        with pytest.raises(Fenced):  # for good, whatever it tries
            older.put("orders", b"again")
        older.close()
        assert newer.put("orders", b"goes on").stored
        got = newer.get("orders", limit=10)
    expected = [b"from the older", b"from the newer", b"goes on"]
    assert [message.payload for message in got] == expected
    assert [message.payload for message in watcher.get("orders", limit=10)] == expected


def speak(client: Client, verb: str) -> None:
    match verb:
        case "put":
            client.put("orders", b"too late")
        case "consume":
            with client.consume("orders", wait=0):
                pass
        case _:
            getattr(client, verb)("orders")


def test_of_two_clients_on_one_state_each_message_is_given_to_one(
    server: str, state: Path, watcher: Client
) -> None:
    older = ada(server, state)
    older.subscribe("orders")
    watcher.put_many("orders", [b"%d" % number for number in range(10)])
    first = older.get("orders", limit=4)  # fetched and settled, not told
    with ada(server, state) as newer:
        rest = newer.get("orders", limit=10)
        with pytest.raises(Fenced):
            older.get("orders")
    older.close()
    assert [message.offset for message in first + rest] == list(range(10))


def test_a_fenced_client_is_given_nothing(server: str, state: Path, watcher: Client) -> None:
    older = ada(server, state)
    older.subscribe("orders")
    watcher.put_many("orders", [b"one", b"two"])
    with ada(server, state) as newer:
        newer.status()
        with pytest.raises(Fenced), older.consume("orders", wait=0):
            pytest.fail("nothing is given to a fenced client")
        assert len(newer.get("orders", limit=10)) == 2
    older.close()


def test_a_block_that_was_open_when_its_client_was_fenced_settles_nothing(
    server: str, state: Path, watcher: Client
) -> None:
    older = ada(server, state)
    older.subscribe("orders")
    watcher.put_many("orders", [b"one", b"two"])
    block = older.consume("orders", wait=5)
    assert len(block.__enter__()) == 2
    with ada(server, state) as newer:
        newer.status()
        with pytest.raises(Fenced):
            block.__exit__(None, None, None)
        assert [message.payload for message in newer.get("orders", limit=10)] == [b"one", b"two"]
    older.close()


def test_a_waiting_twin_in_another_process_learns_at_once_that_it_is_fenced(
    server: str, state: Path, nursery: Nursery, tmp_path: Path
) -> None:
    twin = waiting_process(nursery, tmp_path, server, state)
    with Client(server) as watcher:
        until(lambda: watcher.status()["waiting"] == 1, what="the twin waits")
    with ada(server, state) as newer:
        newer.status()
        note = twin.noted("met")
        assert note[1] == "Fenced"
        assert "'ada'" in note[2]
        newer.put("orders", b"for the newer")
        assert [message.payload for message in newer.get("orders")] == [b"for the newer"]
    twin.kill()


def test_twins_fence_each_other_across_a_crash_of_the_server(
    nursery: Nursery, tmp_path: Path, state: Path
) -> None:
    serving = Serving(nursery, tmp_path)
    serving.start()
    twin = waiting_process(nursery, tmp_path, serving.address, state)
    serving.kill()
    serving.start()
    with ada(serving.address, state) as newer:
        assert newer.subscribe("orders") is False
        assert twin.noted("met")[1] == "Fenced"
    twin.kill()
    serving.kill()


def test_two_ids_may_live_side_by_side_and_one_process_may_have_many(
    server: str, state: Path
) -> None:
    clients = [Client(server, id=f"c{n}", state=state / str(n)) for n in range(8)]
    for client in clients:
        client.subscribe("orders")
    for client in clients:
        client.put("orders", client.id.encode())
    for client in clients:
        assert len(client.get("orders", limit=100)) == 8
        client.close()


def test_puts_of_a_fenced_client_that_were_recorded_go_out_with_its_next_start(
    server: str, state: Path, watcher: Client
) -> None:
    """Both had their own slot of the outbox: nothing of either is lost or doubled."""
    with relay(server) as wire:
        older = ada(wire.address, state)
        older.status()
        wire.refuse()
        older.put_many("orders", [b"older"], wait=False)
        with pytest.raises(Unreachable):
            older.flush(timeout=0.05)
        with ada(server, state) as newer:
            newer.put("orders", b"newer")
            wire.cut()
            with pytest.raises(Fenced):
                older.flush()  # not sent is not flushed
            older.close()
    with ada(server, state) as last:
        last.flush()
        last.put("orders", b"last")
    payloads = [message.payload for message in watcher.get("orders", limit=10)]
    assert payloads == [b"newer", b"older", b"last"]


def test_a_fenced_client_does_not_close_as_if_its_puts_were_sent(
    server: str, state: Path, watcher: Client
) -> None:
    with relay(server) as wire:
        older = ada(wire.address, state)
        older.status()
        wire.refuse()
        older.put("orders", b"older", wait=False)
        with ada(server, state) as newer:
            newer.status()
            wire.cut()
            with pytest.raises(Fenced, match="'ada'"):
                older.close()
    with ada(server, state) as last:
        last.flush()
    assert [message.payload for message in watcher.get("orders", limit=10)] == [b"older"]


async def test_an_asyncio_client_does_not_close_in_silence_either(server: str, state: Path) -> None:
    older = AsyncClient(server, id="ada", state=state, timeout=20)
    await older.status()
    with ada(server, state) as newer:
        newer.status()
        await older.put("orders", b"older", wait=False)
        with pytest.raises(Fenced):
            await older.close()


async def test_an_asyncio_client_is_fenced_alike(server: str, state: Path, watcher: Client) -> None:
    with relay(server) as wire:
        older = AsyncClient(wire.address, id="ada", state=state, timeout=20)
        await older.subscribe("orders")
        waits = asyncio.ensure_future(older.get("orders", wait=30))
        await asyncio.to_thread(until, lambda: watcher.status()["waiting"] == 1)
        wire.refuse()
        await older.put_many("orders", [b"older"], wait=False)
        async with AsyncClient(server, id="ada", state=state, timeout=20) as newer:
            await newer.put("orders", b"newer")
            wire.cut()
            with pytest.raises(Fenced):
                await older.flush()
            with pytest.raises(Fenced):
                await waits
        await older.close()
    assert [message.payload for message in watcher.get("orders", limit=10)] == [b"newer"]


# ------------------------------------------------------------------ copies


@pytest.fixture
def old_copy(server: str, state: Path, tmp_path: Path, watcher: Client) -> Path:
    """A copy of a client's state from last week; the client went on since."""
    with ada(server, state) as client:
        client.subscribe("orders")
        client.put("orders", b"last week")
        assert len(client.get("orders")) == 1
    copy = tmp_path / "backup"
    shutil.copytree(state, copy)
    with ada(server, state) as client:
        client.put("orders", b"this week")
        assert len(client.get("orders")) == 1
    assert len(watcher.get("orders", limit=10)) == 2
    return copy


@pytest.mark.parametrize("verb", ["put", "get", "subscribe", "unsubscribe", "consume"])
def test_an_old_copy_of_a_state_directory_is_refused_and_stores_nothing(
    server: str, state: Path, old_copy: Path, watcher: Client, verb: str
) -> None:
    restored = ada(server, old_copy)
    with pytest.raises(StaleState) as stale:
        speak(restored, verb)
    assert stale.value.code == "stale_state"
    assert "old copy" in stale.value.detail
    assert "another id" in stale.value.detail  # the way out
    restored.close()
    assert watcher.get("orders") == []
    assert [each.cursor for each in watcher.subscriptions("orders", "ada")] == [2]
    with ada(server, state) as original:
        original.put("orders", b"goes on")
        assert [message.payload for message in original.get("orders")] == [b"goes on"]


def test_an_old_copy_with_unsent_puts_does_not_send_them(
    server: str, state: Path, tmp_path: Path, watcher: Client
) -> None:
    with ada(server, state) as client:
        client.put("orders", b"first")
    with Client("tcp://127.0.0.1:1", id="ada", state=state, timeout=0.05) as offline:
        offline.put_many("orders", [b"unsent"], keys=[None], wait=False)
    copy = tmp_path / "backup"
    shutil.copytree(state, copy)
    with ada(server, state) as client:
        client.flush()
    with pytest.raises(StaleState), ada(server, copy) as restored:
        restored.flush()
    payloads = [message.payload for message in watcher.get("orders", limit=10)]
    assert payloads == [b"first", b"unsent"]


def test_a_state_that_was_removed_starts_afresh_and_doubles_nothing(
    server: str, state: Path, watcher: Client
) -> None:
    with ada(server, state) as client:
        client.subscribe("orders")
        client.put("orders", b"one")
        assert len(client.get("orders")) == 1
    shutil.rmtree(state)
    with ada(server, state) as client:
        assert client.subscribe("orders") is False  # the subscription is the server's
        assert client.get("orders") == []
        assert client.put("orders", b"two").offset == 1
    assert [message.payload for message in watcher.get("orders", limit=10)] == [b"one", b"two"]


# ------------------------------------------------------------------ somebody else's


def test_the_state_directory_of_another_id_is_refused_and_left_alone(
    server: str, state: Path
) -> None:
    with ada(server, state) as client:
        client.subscribe("orders")
    with pytest.raises(StorageRefused) as refused:
        Client(server, id="bob", state=state)
    assert refused.value.code == "not_yours"
    assert "'ada'" in refused.value.detail
    assert "'bob'" in refused.value.detail
    with ada(server, state) as client:
        assert client.subscribe("orders") is False


def test_a_state_directory_of_a_newer_format_is_refused(server: str, state: Path) -> None:
    ada(server, state).close()
    with closing(sqlite3.connect(state / "state.db")) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageRefused) as refused:
        ada(server, state)
    assert refused.value.code == "format_too_new"
    assert "99" in refused.value.detail


@pytest.mark.parametrize("name", ["", "_system", "a\nb", "x" * 256])
def test_an_id_outside_the_rules_is_refused_before_anything_is_made(
    server: str, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Client(server, id=name, state=tmp_path / "nobody")
    assert refused.value.code == "name_invalid"
    assert not (tmp_path / "nobody").exists()


# ------------------------------------------------------------------ another server


def test_a_client_that_meets_another_server_under_the_same_address_is_told(
    tmp_path: Path, state: Path
) -> None:
    """An empty server knows nothing of what this client was told: a person has to say so."""
    with testing.server(tmp_path / "one") as address, ada(address, state) as client:
        client.subscribe("orders")
        client.put_many("orders", [b"1", b"2"])
    with testing.server(tmp_path / "two") as address:
        with pytest.raises(HistoryLost, match="another log"), ada(address, state) as client:
            client.subscribe("orders")
        with ClientFiles("ada", state, secrets.token_bytes) as files:
            files.accept(files.look(address, 10))
        with ada(address, state) as client:
            client.subscribe("orders")
            receipt = client.put("orders", b"3")
            assert (receipt.offset, receipt.duplicate) == (0, False)
            assert [message.payload for message in client.get("orders")] == [b"3"]
