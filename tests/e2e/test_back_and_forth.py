"""Copies of one server's data are served in turn: everybody is told, and has a way out."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncemq import Client, Fenced, HistoryLost, StaleState
from tests.e2e.conftest import DEADLINE_SECONDS
from tests.e2e.sites import Site, put_back, restore


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


def two_branches(site: Site, go_back: Callable[[Site], None]) -> None:
    """Both clients were let in on both, and are on the first one now."""
    site.once("topic", "create", "t", "--retain", "forever", "--server", site.address)
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(5, "old")
    site.keep("copy")
    site.start()
    site.put(9, "first")
    assert len(site.take()) == 14
    site.keep("first")
    go_back(site)
    site.move("shop", "reader")
    site.put(3, "second")
    assert [each for each in site.take() if "old" not in each] == [f"second {n}" for n in range(3)]
    site.keep("second")
    site.serve("first")
    site.move("shop", "reader")
    site.put(2, "more")
    assert [each for each in site.take() if "more" in each] == ["more 0", "more 1"]
    site.keep("first")


@pytest.mark.parametrize("go_back", [restore, put_back])
def test_a_client_that_comes_to_a_branch_again_is_told_and_goes_on(
    site: Site, go_back: Callable[[Site], None]
) -> None:
    two_branches(site, go_back)
    site.start()
    address = site.address
    site.stop()
    with Client(address, id="shop", state=site.home / "shop", timeout=0.1) as shop:
        for number in range(4):
            shop.put_many("t", [b"unsent %d" % number], keys=[None], wait=False)
    site.serve("second")
    for _ in range(2):  # nothing is changed by being told
        for client in ("shop", "reader"):
            with site.client(client) as one, pytest.raises(HistoryLost, match="client accept"):
                one.get("t")
    for client in ("shop", "reader"):
        shown = site.accept(client, "--yes")
        assert shown.code == 0
        assert "another branch" in shown.text
    with site.client("shop") as shop:
        shop.flush()
    site.put(1, "again")
    fresh = [f"unsent {number}" for number in range(4)] + ["again 0"]
    assert [each for each in site.take() if each in fresh] == fresh
    assert site.take() == []
    assert "nothing was changed" in site.accept("reader").text
    with site.client("looks") as looks:
        stored = [message.payload.decode() for message in looks.read("t", 5, limit=99)]
    assert stored == [*(f"second {number}" for number in range(3)), *fresh]
    site.keep("second")
    site.serve("first")  # and once more
    with pytest.raises(HistoryLost):
        site.take()
    site.move("reader")
    assert site.take() == []


def test_a_state_that_was_restored_from_an_old_copy_is_still_refused_as_one(site: Site) -> None:
    with site.client("reader") as reader:
        reader.subscribe("t")
    shutil.copytree(site.home / "reader", site.home / "of the beginning")
    two_branches(site, restore)
    shutil.copytree(site.home / "reader", site.home / "of the first")
    site.serve("second")
    site.move("reader")
    site.put(1, "again", "another shop")
    assert site.take() == ["again 0"]
    for copy in ("of the beginning", "of the first"):
        shutil.rmtree(site.home / "reader")
        shutil.copytree(site.home / copy, site.home / "reader")
        with pytest.raises(StaleState):
            site.take()
        refused = site.accept("reader", "--yes")
        assert refused.code == 5
        assert "is an old copy of the state" in refused.err


def test_an_epoch_that_both_copies_granted_tells_them_apart(site: Site) -> None:
    """Nobody raised the generation, and by chance the client was started as often on both."""
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(5, "old")
    site.keep("copy")
    site.start()
    site.put(2, "first")
    assert len(site.take()) == 7
    assert site.take() == []
    site.keep("first")
    put_back(site)
    site.put(6, "second", "another shop")
    site.move("reader")
    assert len(site.take()) == 11  # the second of two epochs: it took its id over
    site.keep("second")
    site.serve("first")
    site.put(9, "more", "a third shop")
    with pytest.raises(HistoryLost, match="by another copy of this server's data"):
        site.take()
    site.move("reader")
    assert site.take() == [f"more {number}" for number in range(9)]


def test_a_client_that_lives_on_through_it_is_told_and_keeps_its_state_to_itself(
    site: Site,
) -> None:
    two_branches(site, restore)
    site.start()
    with site.client("reader") as reader:
        assert reader.get("t") == []
        port = site.address.rpartition(":")[2]
        site.stop()
        shutil.rmtree(site.data)
        shutil.copytree(site.home / "second", site.data)
        site.start(port)
        locked = site.accept("reader", "--yes")
        assert locked.code != 0
        assert "is running" in locked.err
        with pytest.raises(Fenced):  # by the start that this branch let in last
            reader.get("t", wait=DEADLINE_SECONDS)
    with pytest.raises(HistoryLost):
        site.take()
    site.move("reader")
    assert site.take() == []


def test_a_copy_that_was_put_back_by_hand_and_then_restored_is_told_topic_by_topic(
    site: Site,
) -> None:
    """Beyond where the client stands: only its epoch says that something was lost."""
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(5, "old")
    assert len(site.take()) == 5
    site.keep("copy")
    site.start()
    site.put(5, "first")
    assert len(site.take()) == 5
    put_back(site)
    site.put(20, "second", "another shop")
    site.keep("copy")
    restore(site)
    with pytest.raises(HistoryLost, match=r"'t' \(this client stands at @10"):
        site.take()
    accepted = site.accept("reader", "--yes")
    assert accepted.code == 0
    assert "it goes on from 5, where the server has it: messages may come again" in accepted.text
    assert site.take() == [f"second {number}" for number in range(20)]


def test_of_a_restored_backup_nothing_that_was_taken_comes_again(site: Site) -> None:
    """The epoch says that something was lost, and nothing that this client took was."""
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(5, "old")
    site.keep("copy")
    site.start()
    assert len(site.take()) == 5
    restore(site)
    site.put(3, "new", "another shop")
    with pytest.raises(HistoryLost, match="an older copy of its data was put back"):
        site.take()
    site.move("reader")
    assert site.take() == ["new 0", "new 1", "new 2"]
