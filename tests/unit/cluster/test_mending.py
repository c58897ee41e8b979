"""Three servers: one is far behind, or its disk was damaged; the others bring it back.

What was stored is there in the end, on all three alike, and nothing is removed that may be needed.
"""

import errno
from random import Random

import pytest

from oncemq.errors import Corrupt
from oncemq.protocol.names import ServerId
from oncemq.protocol.replies import RefusedReply
from oncemq.storage.log.set_aside import kept_aside
from oncemq.testing.faulty_disk import FaultyDisk
from tests.harness.trio import DATA, SERVERS, Trio

OTHER, LEADER, THIRD = SERVERS


@pytest.fixture
def trio() -> Trio:
    """All in sync, with a log that was compacted, and a leader that has no more than its files."""
    made = Trio()
    made.until(made.are_in_sync)
    made.fill()
    made.kill(OTHER)
    made.until(lambda: made.leader() == LEADER)
    made.start(OTHER)
    made.until(made.are_in_sync)
    return made


def forget_frames(trio: Trio) -> None:
    """A new leader has no frames in memory, but those of its own epoch."""
    for name in (OTHER, LEADER):
        trio.kill(name)
        trio.start(name)
    trio.until(lambda: trio.are_in_sync(OTHER, LEADER))


def kept(trio: Trio) -> int:
    """How many messages the topic has, on all replicas alike."""
    return {each.messages["kept"][1] for each in trio.until_equal().values()}.pop()


def was_filled(trio: Trio, name: ServerId) -> None:
    trio.until(lambda: "cluster_filled_bytes" in trio.facts(name))


# ------------------------------------------------------------------ catching up


def test_an_empty_disk_is_filled_after_the_leader_compacted(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.disks[THIRD] = FaultyDisk(Random("new"))
    trio.start(THIRD)
    was_filled(trio, THIRD)
    trio.put("kept")
    assert kept(trio) == 121
    assert not trio.ended


def test_a_server_that_was_away_is_filled_while_puts_go_on(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.until(lambda: not trio.facts(LEADER)["cluster_refuses"])
    trio.fill(120)
    forget_frames(trio)
    trio.start(THIRD)
    was_filled(trio, THIRD)
    for _ in range(10):
        trio.put("kept")
    assert kept(trio) == 250


def test_frames_stay_that_a_member_goes_on_with(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.disks[THIRD] = FaultyDisk(Random("new"))
    trio.start(THIRD)
    was_filled(trio, THIRD)
    end = trio.running[LEADER].replica.log.last_serial
    trio.cut = lambda source, to: THIRD in (source, to)
    trio.subscribe("gone")
    for _ in range(100):
        trio.put("gone")
    trio.unsubscribe("gone")
    log = trio.running[LEADER].replica.log
    begun = trio.now
    trio.until(lambda: trio.running[OTHER].replica.log._source.kept_from > end + 1)
    assert trio.now - begun < 6_000_000
    assert log._source.kept_from <= end + 1
    trio.cut = lambda _source, _to: False
    trio.until(trio.are_in_sync)
    trio.until(lambda: log._source.kept_from > end + 1)  # and no longer
    assert kept(trio) == 120


def test_the_leader_goes_while_it_fills_another(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.disks[THIRD] = FaultyDisk(Random("new"))
    trio.start(THIRD)
    was_filled(trio, THIRD)
    trio.kill(LEADER)
    trio.until(lambda: trio.leader() == OTHER)
    trio.until(lambda: trio.are_in_sync(THIRD))
    trio.start(LEADER)
    assert kept(trio) == 120


def test_a_server_is_killed_while_it_is_filled(trio: Trio) -> None:
    for _ in range(3):
        trio.kill(THIRD)
        trio.disks[THIRD] = FaultyDisk(Random("new"))
        trio.start(THIRD)
        was_filled(trio, THIRD)
        trio.kill(THIRD)
        trio.start(THIRD)
    assert kept(trio) == 120


def test_a_disk_without_room_for_the_files_keeps_its_log_and_says_so(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.fill(60)
    forget_frames(trio)
    trio.start(THIRD)
    disk = trio.disks[THIRD]
    before = disk.names(f"{DATA}/log")
    disk.faults.capacity = (1 << 40) - disk.free_bytes("/") + 1_000
    trio.until(lambda: "make room" in str(trio.facts(THIRD)["cluster_trouble"]))
    assert before == disk.names(f"{DATA}/log")
    trio.put("kept")
    disk.faults.capacity = 1 << 40
    assert kept(trio) == 181
    assert not trio.ended


# ------------------------------------------------------------------ damage at the start


@pytest.mark.parametrize("name", [LEADER, THIRD], ids=["leader", "follower"])
@pytest.mark.parametrize(
    ("ending", "position", "is_set_aside"),
    [
        (".log", 200, True),
        (".log", 30, True),
        (".cold", 30, True),
        (".ckpt", 100, False),  # there is an older one
        ("FORMAT", 20, True),
        ("EPOCH", 5, False),  # it is there twice
        ("END", 5, False),
        ("OPENED", 30, False),
        (".idx", 100, False),
    ],
)
def test_what_was_damaged_is_there_again(
    trio: Trio, name: ServerId, ending: str, position: int, *, is_set_aside: bool
) -> None:
    trio.kill(name)
    trio.damage(name, ending, position)
    trio.start(name)
    trio.until(lambda: trio.facts(name)["cluster_role"] != "waits for the cluster")
    asides = kept_aside(trio.disks[name], DATA)
    assert bool(asides) == is_set_aside
    trio.put("kept")
    assert kept(trio) == 121
    assert not trio.ended


@pytest.mark.parametrize("name", [LEADER, THIRD], ids=["leader", "follower"])
def test_a_segment_that_the_disk_does_not_give_is_there_again(trio: Trio, name: ServerId) -> None:
    trio.kill(name)
    disk = trio.disks[name]
    sick = f"{DATA}/log/{max(each for each in disk.names(f'{DATA}/log') if 'log' in each)}"

    def bad_sector(call: str, path: str, _size: int) -> None:
        if (call, path) == ("read", sick) and not kept_aside(disk, DATA):
            raise OSError(errno.EIO, "bad sector", path)

    disk.faults.hook = bad_sector
    trio.start(name)
    trio.until(lambda: kept_aside(disk, DATA))
    assert kept(trio) == 120
    assert not trio.ended


def test_a_damaged_log_is_removed_only_once_its_server_is_in_sync_again(trio: Trio) -> None:
    trio.kill(THIRD)
    damaged = trio.damage(THIRD, ".log")
    log = trio.disks[THIRD].names(f"{DATA}/log")
    trio.start(THIRD)
    was_filled(trio, THIRD)
    (aside,) = kept_aside(trio.disks[THIRD], DATA)
    assert trio.disks[THIRD].names(f"{aside}/log") == log
    assert damaged in str(trio.disks[THIRD]._content(f"{aside}/WHY").shown)
    assert aside in str(trio.facts(THIRD)["cluster_trouble"])
    trio.until(lambda: not kept_aside(trio.disks[THIRD], DATA))
    assert trio.are_in_sync(THIRD)
    assert not trio.facts(THIRD)["cluster_trouble"]
    assert kept(trio) == 120


def test_the_only_other_copy_goes_while_a_damaged_one_is_filled(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.put("kept")
    trio.until(lambda: not trio.are_in_sync(THIRD))
    trio.kill(OTHER)
    trio.damage(OTHER, ".log")
    trio.start(OTHER)
    was_filled(trio, OTHER)
    trio.kill(LEADER)  # it has all that was committed; so has what OTHER put aside
    for _ in range(2_000):
        trio.turn()
    assert trio.leader() is None
    assert kept_aside(trio.disks[OTHER], DATA)
    trio.start(THIRD)
    for _ in range(2_000):
        trio.turn()
    assert trio.leader() is None  # THIRD lacks a message
    trio.start(LEADER)
    assert kept(trio) == 121


def test_the_only_copy_is_not_put_aside(trio: Trio) -> None:
    trio.kill(THIRD)
    trio.put("kept")
    trio.until(lambda: not trio.are_in_sync(THIRD))
    trio.kill(OTHER)
    trio.disks[OTHER] = FaultyDisk(Random("new"))
    trio.start(OTHER)
    was_filled(trio, OTHER)  # OTHER is not in sync with this directory
    trio.kill(LEADER)
    trio.damage(LEADER, ".log")
    trio.start(LEADER)
    trio.until(lambda: LEADER in trio.ended)
    error = trio.ended[LEADER]
    assert isinstance(error, Corrupt)
    assert "No other server is in sync" in error.detail
    assert "once repair --data /data" in error.detail
    assert not kept_aside(trio.disks[LEADER], DATA)
    assert "FORMAT" in trio.disks[LEADER].names(DATA)


def test_a_damaged_directory_before_there_is_a_cluster_is_refused() -> None:
    trio = Trio()
    trio.until(trio.are_in_sync)
    for _ in range(3):
        trio.put("kept")
    trio.kill(LEADER)
    trio.damage(LEADER, ".log")
    for name in (OTHER, THIRD):
        trio.kill(name)
    trio.store._entries.clear()  # another etcd
    trio.start(LEADER)
    trio.until(lambda: LEADER in trio.ended)
    assert isinstance(trio.ended[LEADER], Corrupt)


# ------------------------------------------------------------------ damage while it serves


def damage_in_reach(trio: Trio, name: ServerId, *, in_body: bool = False) -> None:
    """Of a cold segment that is there: its indexes hold, and its first messages do not."""
    disk = trio.disks[name]
    cold = next(each for each in disk.names(f"{DATA}/log") if each.endswith(".cold"))
    first = disk._content(f"{DATA}/log/{cold}").shown.index(b"xxxx")  # of a message
    disk.flip_bit(f"{DATA}/log/{cold}", first + 2 if in_body else 300)


@pytest.mark.parametrize("in_body", [False, True])
def test_a_leader_that_meets_damage_gives_the_shard_away_and_is_filled(
    trio: Trio, *, in_body: bool
) -> None:
    damage_in_reach(trio, LEADER, in_body=in_body)
    answer = trio.get("kept", 0)
    assert isinstance(answer, RefusedReply)
    assert answer.code == "corrupt"
    trio.until(lambda: trio.leader() not in (None, LEADER))
    assert trio.get("kept", 0) == trio.get("kept", 0)
    trio.until(lambda: kept_aside(trio.disks[LEADER], DATA))
    trio.put("kept")
    assert kept(trio) == 121
    assert not trio.ended


def test_a_damaged_log_that_commits_need_is_not_put_aside_yet(trio: Trio) -> None:
    trio.cut = lambda source, to: {source, to} != {LEADER, OTHER}
    trio.until(lambda: not trio.are_in_sync(THIRD))
    trio.kill(OTHER)
    damage_in_reach(trio, LEADER)
    trio.start(OTHER)
    trio.until(lambda: trio.are_in_sync(OTHER))
    trio.cut = lambda source, to: THIRD in (source, to)
    trio.get("kept", 0)
    trio.until(lambda: trio.leader() == OTHER)
    for _ in range(1_000):
        trio.turn()
    assert not kept_aside(trio.disks[LEADER], DATA)  # commits need it
    assert "the log is damaged" in str(trio.facts(LEADER)["cluster_trouble"])
    trio.put("kept")
    trio.cut = lambda _source, _to: False
    trio.until(lambda: kept_aside(trio.disks[LEADER], DATA))
    assert kept(trio) == 121


def test_a_leader_that_would_fill_others_with_damage_finds_it(trio: Trio) -> None:
    damage_in_reach(trio, LEADER)
    trio.kill(THIRD)
    trio.disks[THIRD] = FaultyDisk(Random("new"))
    trio.start(THIRD)
    trio.until(lambda: trio.leader() == OTHER)
    assert kept(trio) == 120


def test_a_follower_whose_compaction_meets_damage_is_filled(trio: Trio) -> None:
    trio.fill_some(60, unsubscribes=False)
    disk = trio.disks[THIRD]
    sealed = [each for each in disk.names(f"{DATA}/log") if each.endswith(".log")][1:-1]
    for name in sealed:
        for position in range(200, 3_000, 100):
            disk.flip_bit(f"{DATA}/log/{name}", position)
    trio.unsubscribe("gone")
    trio.until(lambda: kept_aside(disk, DATA))
    assert kept(trio) == 180
    assert not trio.ended
