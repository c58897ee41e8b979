"""A signal handler that raises while a transaction's block ends: the next one goes on all the same.

The interrupt is put at the very step that ends the block, where a storm of signals was seen to
leave "a transaction is open here" for good.
"""

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
