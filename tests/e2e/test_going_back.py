"""A server that went back in time, as people meet it: nothing is withheld or doubled in silence."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncemq import Client, Fenced, HistoryLost
from oncemq.storage.disk import LocalDisk
from oncemq.storage.segments.layout import raise_generation
from tests.e2e.conftest import DEADLINE_SECONDS, start_server
from tests.e2e.sites import Site, put_back, restore


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


def damage(site: Site) -> None:
    """One bit flips in the middle of the log, and the loss behind it is accepted."""
    site.stop()
    (segment,) = [path for path in (site.data / "log").iterdir() if path.suffix == ".seg"] or [
        max((site.data / "log").iterdir(), key=lambda path: path.stat().st_size)
    ]
    raw = bytearray(segment.read_bytes())
    place = raw.index(b"old 250")
    raw[place] ^= 1
    segment.write_bytes(raw)
    shutil.rmtree(site.data / "checkpoints")
    (site.data / "checkpoints").mkdir()
    ran = site.once("repair", "--accept-loss", "--data", str(site.data))
    assert ran.code == 0, ran.err
    site.start()


@pytest.mark.parametrize("go_back", [damage, restore, put_back])
def test_a_subscriber_of_a_server_that_went_back_gets_all_that_is_new_once_it_is_accepted(
    site: Site, go_back: Callable[[Site], None]
) -> None:
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(250, "old")
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    site.start()
    with site.client("shop") as shop:
        for first in (250, 251):
            end = 251 if first == 250 else 500
            shop.put_many("t", [f"old {number}".encode() for number in range(first, end)])
    assert len(site.take()) == 500
    go_back(site)
    with pytest.raises(HistoryLost) as lost:
        site.take()
    assert "once client accept --id reader --state" in lost.value.detail
    with pytest.raises(HistoryLost):
        site.put(1, "kept")  # 250 puts of this one have receipts and are gone
    shown = site.accept("reader")
    assert shown.code == 2
    assert "say --yes" in shown.err
    assert site.accept("reader", "--yes").code == 0
    accepted = site.accept("shop", "--yes", "--json")
    assert json.loads(accepted.out)["put"] == [{"topic": "t", "lost": 250}]
    site.put(400, "new")
    taken = site.take()
    again = [each for each in taken if each.startswith("old")]
    fresh = ["kept 0", *(f"new {number}" for number in range(400))]  # the outbox had the first
    assert [each for each in taken if each not in again] == fresh
    assert again == [] or go_back is put_back  # where nobody can say, the server's cursor counts
    assert site.take() == []
    assert "nothing was changed" in site.accept("reader").text


def test_a_client_that_knows_no_more_than_the_server_goes_on_by_itself(site: Site) -> None:
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(3, "old")
    assert len(site.take()) == 3
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    restore(site)
    site.put(2, "new")
    assert site.take() == ["new 0", "new 1"]


def test_a_second_loss_is_told_though_the_first_was_accepted(site: Site) -> None:
    site.once("topic", "create", "t", "--retain", "forever", "--server", site.address)

    def lose(kept: str) -> None:
        """Put one that is in the backup, and three that are not, in one life of the client."""
        backup, data = str(site.home / kept), str(site.data)
        with site.client("shop") as shop:
            shop.put("t", kept.encode())
            assert site.once("backup", backup, "--data", data).code == 0
            shop.put_many("t", [b"lost"] * 3)
        site.stop()
        shutil.rmtree(site.data)
        assert site.once("restore", backup, "--data", data).code == 0
        site.start()
        with pytest.raises(HistoryLost, match="3 messages"):
            site.put(1, f"after {kept}")

    lose("one")
    assert site.accept("shop", "--yes").code == 0
    lose("two")
    assert site.accept("shop", "--yes").code == 0
    site.put(1, "end")
    with site.client("looks") as looks:
        stored = [message.payload.decode() for message in looks.read("t", 0, limit=99)]
    assert stored == ["one", "after one 0", "two", "after two 0", "end 0"]


def test_what_is_in_hand_or_committed_counts_as_known(site: Site) -> None:
    """Clients that live through a restore: blocks open, transactions that ended well."""
    backup, data = str(site.home / "backup"), str(site.data)
    port = site.address.rpartition(":")[2]
    with (
        site.client("takes") as takes,
        site.client("consumes") as consumes,
        site.client("commits") as commits,
        site.client("rests") as rests,
    ):
        for client in (takes, consumes, commits, rests):
            client.subscribe("t")
        site.put(2, "kept")
        assert site.once("backup", backup, "--data", data).code == 0
        assert len(rests.get("t", limit=2)) == 2
        site.put(2, "lost")
        with commits.transaction() as made:
            made.put("t", b"lost")

        def go_back() -> None:
            site.stop()
            shutil.rmtree(site.data)
            assert site.once("restore", backup, "--data", data).code == 0
            bind = f"tcp://127.0.0.1:{port}"
            site.serving = start_server(site.home, "--bind", bind, data=site.data)
            site.put(9, "new", client="another")

        def in_a_block() -> None:
            with consumes.consume("t", limit=4) as messages:
                assert len(messages) == 4
                go_back()
                with pytest.raises(HistoryLost, match=r"t@2 to t@3"):
                    consumes.subscribe("other")

        def in_a_transaction() -> None:
            with takes.transaction() as taken:
                assert len(taken.get("t", limit=4)) == 4
                with pytest.raises(HistoryLost, match="t@0 was worked on"):
                    in_a_block()

        with pytest.raises(HistoryLost, match=r"t@2 to t@3"):
            in_a_transaction()
        with pytest.raises(HistoryLost, match="1 transactions"):
            commits.put("t", b"after")
        assert len(rests.get("t", limit=99)) == 9  # it knows no more than the server


@pytest.mark.parametrize("names", [(9, 5), (5, 9)])
def test_of_a_copy_that_was_gone_back_to_twice_everything_is_given(
    site: Site, names: tuple[int, int]
) -> None:
    """Whichever of the two generations has the higher number."""
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(50, "old")
    assert len(site.take()) == 50
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    restore(site, names[0])
    site.put(30, "first")
    assert len(site.take()) == 30
    restore(site, names[1])
    with pytest.raises(HistoryLost, match="none of those that led to"):
        site.put(1, "kept", "shop")
    site.put(60, "second", "other shop")  # beyond where the reader stood
    with pytest.raises(HistoryLost, match="none of those that led to"):
        site.take()
    shown = site.accept("reader", "--yes")
    assert shown.code == 0
    assert "another branch" in shown.text
    assert "messages may come again" in shown.text
    assert site.take() == [f"second {number}" for number in range(60)]
    assert site.accept("shop", "--yes").code == 0
    site.put(1, "end")
    assert site.take() == ["kept 0", "end 0"]


@pytest.mark.parametrize("subscribes_again", [True, False])
def test_what_was_taken_before_a_subscription_ended_does_not_come_again(
    site: Site, subscribes_again: bool
) -> None:
    """It ended in the future that was lost, and is there again."""
    with site.client("reader") as reader:
        reader.subscribe("t")
        site.put(9, "old")
        assert len(reader.get("t", limit=3)) == 3
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    site.start()
    assert len(site.take()) == 6
    with site.client("reader") as reader:
        reader.unsubscribe("t")
        if subscribes_again:
            reader.subscribe("t")
            site.put(2, "lost", "other")
            assert len(reader.get("t", limit=9)) == 2
    restore(site, 7)
    site.put(2, "new", "another")
    with pytest.raises(HistoryLost, match="had ended are there again: 't'"):
        site.take()
    shown = site.accept("reader", "--yes")
    assert shown.code == 0
    assert "t: the client had ended this subscription, and the server has it again" in shown.text
    assert "it goes on from 9 (once unsubscribe t ends it)" in shown.text
    assert site.take() == ["new 0", "new 1"]


def test_what_was_worked_on_while_its_pattern_ended_does_not_come_again(site: Site) -> None:
    """The block ended well, after its subscription had."""
    with site.client("reader") as reader, site.client("shop") as shop:
        reader.subscribe("x.*")
        for number in range(4):
            shop.put("x.a", b"%d" % number)
    site.keep("copy")
    site.start()
    with site.client("reader") as reader, reader.consume("x.*", limit=3) as messages:
        assert [each.payload for each in messages] == [b"0", b"1", b"2"]
        assert reader.unsubscribe("x.*")
    restore(site)
    with pytest.raises(HistoryLost, match=r"had ended are there again: 'x\.a', 'x\.\*'"):
        site.take()
    assert "it goes on from 3 (once unsubscribe x.a ends it)" in site.accept("reader", "--yes").text
    with site.client("reader") as reader:
        assert [each.payload for each in reader.get("x.a", limit=9)] == [b"3"]


@pytest.mark.parametrize("go_back", [restore, put_back])
def test_one_that_ended_with_nothing_taken_and_a_pattern_are_told_and_can_be_ended_again(
    site: Site, go_back: Callable[[Site], None]
) -> None:
    """They would hold messages for good; processes that end them did not make them."""
    with site.client("reader") as reader:
        reader.subscribe("t")
        reader.subscribe("x.*")
    site.put(2, "old")
    site.keep("copy")
    site.start()
    with site.client("reader") as reader:
        for name in ("t", "x.*"):
            assert reader.unsubscribe(name)
    go_back(site)
    with site.client("shop") as shop:
        shop.put("x.a", b"made by the pattern")
    with pytest.raises(HistoryLost, match=r"had ended are there again: 't', 'x\.\*'"):
        site.take()
    shown = site.accept("reader", "--yes")
    assert shown.code == 0
    assert "t: the client had ended this subscription, and the server has it again" in shown.text
    assert "it goes on from 0 (once unsubscribe t ends it)" in shown.text
    assert "x.*: the client had ended this pattern, and the server has it again" in shown.text
    assert "(once unsubscribe 'x.*' ends it, and them)" in shown.text
    assert site.take() == ["old 0", "old 1"]
    who = "--id", "reader", "--state", str(site.home / "reader"), "--server", site.address
    for name in ("t", "x.*"):
        assert site.once("unsubscribe", name, *who).code == 0
    with site.client("reader") as reader:
        assert reader.subscriptions(client="reader") == []
    assert "nothing was changed" in site.accept("reader").text


def test_puts_recorded_on_another_branch_are_not_taken_for_those_that_have_their_numbers(
    site: Site,
) -> None:
    """A backup is restored and used, then people go back to the directory that was there before."""
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(10, "old")
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    site.start()
    site.put(20, "original")
    site.stop()
    shutil.copytree(site.data, site.home / "original")
    restore(site)
    assert site.accept("shop", "--yes").code == 0
    site.put(2, "restored")
    address = site.address
    site.stop()
    with Client(address, id="shop", state=site.home / "shop", timeout=0.1) as shop:
        for number in range(28):
            shop.put_many("t", [b"unsent %d" % number], keys=[None], wait=False)
    shutil.rmtree(site.data)
    shutil.copytree(site.home / "original", site.data)
    site.start()
    accepted = site.accept("shop", "--yes")
    assert accepted.code == 0
    assert "the server has its numbers up to 30" in accepted.text
    with site.client("shop") as shop:
        shop.flush()
    assert site.take()[30:] == [f"unsent {number}" for number in range(28)]


def test_a_process_of_a_lost_future_is_fenced_by_who_replaces_it(site: Site) -> None:
    with site.client("job") as job:
        job.subscribe("t")
    site.put(5, "old")
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    site.start()
    with site.client("job") as before:
        assert before.get("t", limit=1)
    port = site.address.rpartition(":")[2]
    with site.client("job") as before:  # its epoch is one that the restored server would grant next
        assert len(before.get("t", limit=9)) == 4
        site.stop()
        shutil.rmtree(site.data)
        shutil.copytree(site.home / "copy", site.data)
        raise_generation(LocalDisk(), str(site.data), lambda count: bytes(range(7, 7 + count)))
        site.serving = start_server(site.home, "--bind", f"tcp://127.0.0.1:{port}", data=site.data)
        fresh = site.home / "fresh"
        with Client(site.address, id="job", state=fresh, timeout=DEADLINE_SECONDS) as job:
            assert len(job.get("t", limit=2)) == 2
            with pytest.raises(Fenced):
                before.put("t", b"of a lost future")
            assert job.get("t", limit=9)


def test_an_emptied_data_directory_is_another_server_and_is_told(site: Site) -> None:
    with site.client("reader") as reader:
        reader.subscribe("t")
    site.put(3, "old")
    assert len(site.take()) == 3
    site.stop()
    shutil.rmtree(site.data)
    site.start()
    with pytest.raises(HistoryLost, match="another log"):
        site.take()
    assert site.accept("reader", "--yes").code == 0
    assert site.accept("shop", "--yes").code == 0
    with site.client("reader") as reader:
        assert reader.subscribe("t")
    site.put(2, "new")
    assert site.take() == ["new 0", "new 1"]


def test_a_client_that_stays_connected_is_told_too(site: Site) -> None:
    with site.client("other") as other:
        other.subscribe("t")
    site.put(2, "old")
    site.stop()
    shutil.copytree(site.data, site.home / "copy")
    site.start()
    port = site.address.rpartition(":")[2]
    with site.client("other") as other:
        site.put(2, "more")
        assert len(other.get("t", limit=9)) == 4
        site.stop()
        shutil.rmtree(site.data)
        shutil.copytree(site.home / "copy", site.data)
        raise_generation(LocalDisk(), str(site.data), lambda count: bytes(range(7, 7 + count)))
        site.serving = start_server(site.home, "--bind", f"tcp://127.0.0.1:{port}", data=site.data)
        with pytest.raises(HistoryLost, match=r"t@2 to t@3"):
            other.get("t", wait=DEADLINE_SECONDS)


def test_ids_are_listed_and_forgotten(site: Site) -> None:
    for name in ("reader", "gone"):
        with site.client(name) as client:
            client.subscribe("t") if name == "reader" else client.topics()
    listed = site.once("client", "list", "--server", site.address, "--json")
    assert [each["client"] for each in json.loads(listed.out)] == ["gone", "reader"]
    assert site.once("client", "forget", "gone", "--server", site.address).code == 0
    refused = site.once("client", "forget", "reader", "--server", site.address)
    assert (refused.code, "subscribes to t" in refused.err) == (1, True)
    forced = site.once(
        "client", "forget", "reader", "--end-subscriptions", "--server", site.address
    )
    assert forced.code == 0
    assert site.once("client", "list", "--server", site.address).text == ""


def test_a_running_client_is_not_moved(site: Site) -> None:
    with site.client("reader") as reader:
        reader.subscribe("t")
        refused = site.accept("reader", "--yes")
    assert refused.code == 7
    assert "end it first" in refused.err
