"""Transactions, stages and puts to several topics, with real clients and the real server."""

import asyncio
import pickle
import shutil
import threading
from pathlib import Path

import pytest

from oncemq import AsyncClient, Client, HistoryLost, InvalidRequest, Unwanted, testing
from oncemq.protocol.records import Retention


def payloads(messages) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.fixture
def job(server: str, tmp_path: Path):
    with Client(server, id="job", state=tmp_path / "job") as job:
        job.subscribe("in")
        job.create_topic("out", Retention(forever=True))
        job.create_topic("log", Retention(forever=True))
        yield job


def test_consume_transform_put(job: Client) -> None:
    job.put_many("in", [b"%d" % number for number in range(10)])
    while True:
        with job.transaction() as tx:
            got = tx.get("in", limit=3)
            tx.put_many("out", [message.payload * 2 for message in got])
            tx.put("log", b"%d" % len(got), key=b"k", headers={"a": "b"})
        if not got:
            break
    assert payloads(job.read("out", 0)) == [b"%d" % number * 2 for number in range(10)]
    logged = job.read("log", 0)
    assert payloads(logged) == [b"3", b"3", b"3", b"1", b"0"]
    assert (logged[0].key, logged[0].headers) == (b"k", {"a": "b"})
    assert [receipt.id for receipt in tx.receipts["log"]] == ["log@4"]
    assert job.get("in") == []


def test_an_exception_gives_everything_up(job: Client) -> None:
    def fail() -> None:
        with job.transaction() as tx:
            assert payloads(tx.get("in")) == [b"a"]
            tx.put("out", b"never")
            assert tx.receipts == {}
            raise ZeroDivisionError

    job.put("in", b"a")
    with pytest.raises(ZeroDivisionError):
        fail()
    assert job.topic("out").topic.end == 0
    assert payloads(job.get("in")) == [b"a"]


def test_a_reader_sees_a_commit_whole(job: Client, server: str) -> None:
    """Whoever sees a message of one topic sees its twin on the other."""
    seen: list[tuple[int, int]] = []
    stop = threading.Event()

    def look() -> None:
        with Client(server) as reader:
            while not stop.is_set():
                ends = [reader.topic(name).topic.end for name in ("out", "log")]
                seen.append((ends[0], ends[1]))

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(30):
        with job.transaction() as tx:
            tx.put_many("out", [b"%d" % number] * 3)
            tx.put_many("log", [b"%d" % number] * 3)
    stop.set()
    looking.join()
    assert all(out % 3 == 0 and log % 3 == 0 and log >= out for out, log in seen)


def test_one_message_to_many_topics(job: Client) -> None:
    topics = [f"t{number}" for number in range(255)]
    for topic in topics[:3]:
        job.create_topic(topic, Retention(forever=True))
    receipts = job.put(topics, b"all", key=b"k")
    assert [receipt.topic for receipt in receipts] == topics
    assert [receipt.stored for receipt in receipts[:4]] == [True, True, True, False]
    assert payloads(job.read("t2", 0)) == [b"all"]
    for refused in ([*topics, "one more"], ["out", "out"], []):
        with pytest.raises(InvalidRequest):
            job.put(refused, b"x")


def test_stages_are_put_here_and_committed_there(job: Client, server: str) -> None:
    with Client(server) as executor:
        stage = executor.stage()
        stage.put_many([b"a", b"b"], keys=[b"k", None])
        stage.put_many([])
        token = pickle.loads(pickle.dumps(stage.close()))
        lost = executor.stage()
        lost.put_many([b"x"])
        lost.close()
        lost.drop()
    assert job.topic("out").topic.end == 0
    done = job.commit("query", 1, [("out", token), ("log", token)])
    assert (done.already, len(done.receipts["log"])) == (False, 2)
    assert job.commit("query", 1, [("out", token)]).already
    assert payloads(job.read("out", 0)) == payloads(job.read("log", 0)) == [b"a", b"b"]
    assert job.status()["committed"] == 1
    assert job.drop_stage(token) is False


def test_threads_have_transactions_at_the_same_time(job: Client) -> None:
    def work(name: bytes) -> None:
        for number in range(20):
            with job.transaction() as tx:
                tx.put("out", b"%s %d" % (name, number))

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = payloads(job.read("out", 0, limit=1000))
    assert len(found) == 60
    for name in (b"a", b"b", b"c"):
        own = [each for each in found if each.startswith(name)]
        assert own == [b"%s %d" % (name, number) for number in range(20)]


async def fail(job: AsyncClient) -> None:
    async with job.transaction() as tx:
        await tx.get("in", wait=5)
        raise ZeroDivisionError


def test_the_same_with_asyncio(server: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(server, id="job", state=tmp_path / "aio") as job:
            await job.subscribe("in")
            await job.create_topic("out", Retention(forever=True))
            await job.put_many("in", [b"a", b"b"])
            async with job.transaction(required=False) as tx:
                got = await tx.get("in", wait=5)
                await tx.put_many("out", payloads(got))
                await tx.put(["out", "log"], b"both")
            assert [receipt.offset for receipt in tx.receipts["out"]] == [0, 1, 2]
            await job.put("in", b"c")
            with pytest.raises(ZeroDivisionError):
                await fail(job)
            assert payloads(await job.get("in", wait=5)) == [b"c"]
            stage = job.stage()
            await stage.put_many([b"d"])
            token = await stage.close()
            assert not (await job.commit("query", 3, [("out", token)])).already
            assert (await job.commit("query", 3, [("out", token)])).already
            dropped = job.stage()
            await dropped.put_many([b"x"])
            dropped.drop()
            assert await job.drop_stage(token) is False
            receipts = await job.put(["out", "log"], b"e")
            assert [receipt.stored for receipt in receipts] == [True, False]
            assert payloads(await job.read("out", 0)) == [b"a", b"b", b"both", b"d", b"e"]

    asyncio.run(main())


def test_a_listener_hears_of_what_was_committed(job: Client, server: str) -> None:
    with Client(server) as listener:
        listener.subscribe("out")
        heard = listener.listen("out")
        job.put("out", b"put")
        assert next(heard).payload == b"put"
        with job.transaction() as tx:
            tx.put_many("out", [b"a", b"b"])
        job.put("out", b"after")
        assert payloads([next(heard), next(heard), next(heard)]) == [b"a", b"b", b"after"]


def test_what_users_hold_shows_what_it_is(job: Client) -> None:
    job.subscribe("shown")
    job.put_many("shown", [b"1", b"2"])
    with job.transaction() as tx:
        assert repr(tx) == f"<Transaction of {job.id!r} open: took nothing; messages put: 0>"
        tx.get("shown", limit=2, wait=5)
        tx.put("shown", b"3")
        took = "took shown@0 to @1; messages put: 1"
        assert repr(tx) == f"<Transaction of {job.id!r} open: {took}>"
    assert repr(tx).startswith(f"<Transaction of {job.id!r} committed: {took}")
    stage = job.stage()
    stage.put_many([b"4", b"5"])
    assert repr(stage).endswith(f" of {job.id!r}: 2 messages>")
    stage.drop()
    pending = job.put("shown", b"6", wait=False)
    receipt = pending.result()
    assert repr(pending) == f"<Pending: {receipt!r}>"
    refused = job.put("nowhere", b"7", wait=False, required=True)
    with pytest.raises(Unwanted):
        refused.result()
    assert repr(refused).startswith("<Pending: failed, Unwanted(")


def committed(mq: Client, number: int, text: bytes, after: str | int = "") -> str:
    """One message, under a number of the nightly load; the mark of the commit."""
    stage = mq.stage()
    stage.put_many([text])
    return mq.commit("nightly", number, [("out", stage.close())], after=after).mark


def test_a_commit_that_another_copy_of_the_server_does_not_have_is_missed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with testing.server(first) as address, Client(address) as mq:
        mq.create_topic("out", Retention(forever=True))
        mark = committed(mq, 3, b"a")
        assert mark.startswith("3@")
    shutil.copytree(first, second)
    with testing.server(first) as address, Client(address) as mq:
        mark = committed(mq, 8, b"b", mark)
    with testing.server(second) as address, Client(address) as mq:
        for after in (mark, 8):
            with pytest.raises(HistoryLost, match="'nightly' has committed number 8"):
                committed(mq, 9, b"c", after)
        committed(mq, 8, b"x")
        with pytest.raises(HistoryLost, match="recorded another one under that number"):
            committed(mq, 9, b"c", mark)
        assert payloads(mq.read("out", 0)) == [b"a", b"x"]
        for wrong in ("8@", "@8", "eight", "8@x", -1):
            with pytest.raises(InvalidRequest, match="after is the mark of a commit"):
                committed(mq, 9, b"c", wrong)
    with testing.server(first) as address, Client(address) as mq:
        assert committed(mq, 9, b"c", mark).startswith("9@")
