"""What housekeeping asks of a replica: a follower rests on the commit, and states nothing."""

from typing import Any

from oncemq.cluster.keeper import Keeper
from oncemq.protocol.names import Micros, Serial, TopicId
from oncemq.server.events import Events
from tests.harness.replica_logs import LeaderLog, opened, sync

NOW = Micros(1_000)
STAGES = [TopicId(3)]


class SpokenTo:
    """Stands where a leader has its driver, and notes what it is asked."""

    settled_serial = Serial(17)

    def __init__(self, *, has_room: bool = True) -> None:
        self.asked: list[tuple[str, object]] = []
        self.has_room = has_room

    def upkeep(self, now: Micros) -> None:
        self.asked.append(("upkeep", now))

    def mark(self, now: Micros) -> None:
        self.asked.append(("mark", now))

    def end_stages(self, stage_ids: object, now: Micros) -> bool:
        self.asked.append(("end_stages", stage_ids))
        return self.has_room


def led_by(keeper: Keeper, driver: Any) -> None:
    keeper.driver = driver


def test_a_follower_states_no_facts() -> None:
    directory = opened(LeaderLog(topics=1).own_home())
    keeper = Keeper(directory, Events())
    last = directory.log.last_serial
    keeper.upkeep(NOW)
    keeper.mark(NOW)
    assert keeper.end_stages(STAGES, NOW) is False
    assert directory.log.last_serial == last
    assert directory.log.take_group() is None


def test_who_leads_states_them() -> None:
    keeper = Keeper(opened(LeaderLog().own_home()), Events())
    driver = SpokenTo()
    led_by(keeper, driver)
    keeper.upkeep(NOW)
    keeper.mark(NOW)
    assert keeper.end_stages(STAGES, NOW) is True
    assert driver.asked == [("upkeep", NOW), ("mark", NOW), ("end_stages", STAGES)]
    led_by(keeper, SpokenTo(has_room=False))
    assert keeper.end_stages(STAGES, NOW) is False


def test_a_follower_rests_on_what_is_committed_and_on_its_disk() -> None:
    leader = LeaderLog(topics=2)
    directory = opened(leader.own_home())
    keeper = Keeper(directory, Events())
    assert (keeper.settled_serial, keeper.shard.serial) == (0, 0)  # all synced, nothing committed
    directory.apply_to(Serial(2))
    assert keeper.settled_serial == 2


def test_a_state_ahead_of_the_disk_is_not_rested_on() -> None:
    leader = LeaderLog(topics=2)
    directory = opened(leader.new_home())
    received = directory.log.check_frames(leader.append()[1], directory.log.newest)
    directory.log.append_received(received, 0)
    directory.received(received.frames)
    directory.apply_to(Serial(3))
    keeper = Keeper(directory, Events())
    assert keeper.settled_serial == 0
    sync(directory)
    assert keeper.settled_serial == 3


def test_a_followers_checkpoint_says_where_its_state_is() -> None:
    directory = opened(LeaderLog(topics=2).own_home())
    keeper = Keeper(directory, Events())
    folded = keeper.folded
    assert folded is not None
    directory.apply_to(Serial(2))
    assert folded() == directory.log.place_of(2)
    led_by(keeper, SpokenTo())  # it began as a follower's, and ends as a leader's
    assert folded() == directory.log.newest
    assert keeper.folded is None
    assert keeper.settled_serial == 17
