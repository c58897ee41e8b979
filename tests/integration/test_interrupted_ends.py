"""A signal handler that raises while a transaction's block ends: the next one goes on all the same.

The interrupt is put at the very step that ends the block, where a storm of signals was seen to
leave "a transaction is open here" for good.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from oncemq import Client
from oncemq.client.verbs.transaction_work import TransactionWork


class Interrupted(Exception):
    """What a signal handler raises."""


@pytest.fixture
def job(server: str, tmp_path: Path):
    with Client(server, id="job", state=tmp_path / "job", timeout=5) as mq:
        mq.subscribe("in")
        mq.put_many("in", [b"one", b"two"])
        yield mq


def begin_and_raise(job: Client, kept: list[Any]) -> None:
    with job.transaction() as tx:
        kept.append(tx)
        assert [each.payload for each in tx.get("in", limit=1)] == [b"one"]
        raise Interrupted


def interrupted_transaction(job: Client) -> list[Any]:
    """What the user still has of a transaction whose end was cut short."""
    kept: list[Any] = []
    with pytest.raises(Interrupted):
        begin_and_raise(job, kept)
    return kept


def cut_the_first_abort_short(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, cut = TransactionWork.abort, [True]

    def abort(self: TransactionWork) -> None:
        if cut and cut.pop():
            raise Interrupted
        whole(self)

    monkeypatch.setattr(TransactionWork, "abort", abort)


def test_a_transaction_that_could_not_be_aborted_is_aborted_by_the_next_one_who_gets(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_the_first_abort_short(monkeypatch)
    kept = interrupted_transaction(job)
    assert [each.payload for each in job.get("in", limit=2)] == [b"one", b"two"]
    assert "not committed" in repr(kept[0])


def test_a_transaction_that_could_not_be_aborted_is_not_in_the_way_of_the_next(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_the_first_abort_short(monkeypatch)
    interrupted_transaction(job)
    with job.transaction() as tx:
        assert [each.payload for each in tx.get("in", limit=2)] == [b"one", b"two"]
    assert job.get("in") == []


def test_a_block_that_could_not_say_that_it_is_over_is_over(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutShort(ExitStack):
        def __exit__(self, *_: object) -> bool:
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr("oncemq.client.blocking.getting.ExitStack", CutShort)
        kept = interrupted_transaction(job)  # as a variable of the user's has it
    assert [each.payload for each in job.get("in", limit=2)] == [b"one", b"two"]
    assert kept


# ------------------------------------------------------------------ whose exception somebody keeps


def kept_exception(job: Client) -> BaseException:
    """As a future keeps it, or a log: with the frames of the block that it left."""
    with pytest.raises(Interrupted) as raised:
        begin_and_raise(job, [])
    return raised.value


def test_a_transaction_that_could_not_be_aborted_is_over_though_its_exception_is_kept(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_the_first_abort_short(monkeypatch)
    kept = kept_exception(job)
    assert [each.payload for each in job.get("in", limit=2)] == [b"one", b"two"]
    assert kept.__traceback__ is not None


def test_a_block_that_could_not_say_that_it_is_over_is_over_though_its_exception_is_kept(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutShort(ExitStack):
        def __exit__(self, *_: object) -> bool:
            raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr("oncemq.client.blocking.getting.ExitStack", CutShort)
        kept = kept_exception(job)
    assert [each.payload for each in job.get("in", limit=2)] == [b"one", b"two"]
    assert kept.__traceback__ is not None


# ------------------------------------------------------------------ what only a collection frees


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Garbage in rings stays where it is, unless somebody asks for a collection."""
    gc.disable()
    yield
    gc.enable()


def interrupted_in_a_ring(job: Client) -> None:
    """The block's frames are in a ring, as `contextmanager` makes one since Python 3.12."""
    try:
        begin_and_raise(job, [])
    except Interrupted as error:
        error.args = (error,)


@pytest.mark.usefixtures("uncollected")
def test_a_transaction_that_could_not_be_aborted_is_aborted_though_its_frames_are_in_a_ring(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_the_first_abort_short(monkeypatch)
    interrupted_in_a_ring(job)
    assert [each.payload for each in job.get("in", limit=2)] == [b"one", b"two"]


@pytest.mark.usefixtures("uncollected")
def test_a_transaction_begins_though_the_frames_of_one_that_was_cut_short_are_in_a_ring(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_the_first_abort_short(monkeypatch)
    interrupted_in_a_ring(job)
    with job.transaction() as tx:
        assert [each.payload for each in tx.get("in", limit=2)] == [b"one", b"two"]


def leave_a_block_open(job: Client) -> None:
    """Its frames are in a ring, and it could not say that it is over."""

    class CutShort(ExitStack):
        def __exit__(self, *_: object) -> bool:
            raise Interrupted

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("oncemq.client.blocking.getting.ExitStack", CutShort)
        interrupted_in_a_ring(job)


@pytest.mark.usefixtures("uncollected")
def test_a_block_whose_frames_are_in_a_ring_is_over(job: Client) -> None:
    leave_a_block_open(job)
    assert [each.payload for each in job.get("in", limit=2)] == [b"one", b"two"]


@pytest.mark.usefixtures("uncollected")
def test_another_thread_does_not_wait_for_ever_for_a_block_whose_frames_are_in_a_ring(
    job: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncemq.client.blocking.getting.LOOK_SECONDS", 0.01)
    leave_a_block_open(job)
    got: list[bytes] = []
    getting = threading.Thread(
        target=lambda: got.extend(each.payload for each in job.get("in", limit=2)), daemon=True
    )
    getting.start()
    getting.join(30)
    assert got == [b"one", b"two"]
