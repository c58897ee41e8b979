"""A replica that leads: its log goes to the others, and what all in sync have is committed.

How it works. A group of records is sent to the followers when it is taken for writing, before this
server's own disk has it, so that all syncs overlap. What the leader's rules call committed, the
driver tells of: replies leave, readers see it. The driver, and with it the broker, is made when the
rules let clients in; before that there is only the log.

What is answered without a record of its own (a get that finds nothing, a list, a refusal) waits for
a round: the members in sync say that this server still leads. Answers of one turn share a round;
while one is under way, the next answers wait for the one after it.

Law: no answer to a client leaves but by a commit or a round of this epoch, except about the process
itself (status).
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from oncemq.cluster.replica_directory import ReplicaDirectory, place
from oncemq.cluster.sends import Sends
from oncemq.cluster.transfer.refills import Refills
from oncemq.cluster.transfer.sent_files import Give
from oncemq.errors import Corrupt
from oncemq.protocol.names import Micros, Serial, ServerId, ShardId
from oncemq.protocol.records import EpochBegan
from oncemq.protocol.replicas.messages import Append, MemberMessage, RefillWanted
from oncemq.protocol.step import Body
from oncemq.replication.actions import (
    AskCoordinator,
    BeginEpoch,
    CommitTo,
    ConfirmedTo,
    LeaderAction,
    SendFrames,
    SendToMember,
    ServeClients,
    StartRefill,
    StepDown,
)
from oncemq.replication.leader import Leader
from oncemq.replication.view import Ask
from oncemq.server.driver import Driver
from oncemq.server.served import Outgoing, sooner
from oncemq.storage.log.writer import Group
from oncemq.wire.replica_codec import encode_replica

HELD_BYTES_MAX = 64 << 20  # of answers that wait for a round

logger = logging.getLogger("oncemq.server")


class Leading:
    """From the election to the end of this server's epoch."""

    def __init__(
        self,
        me: ServerId,
        shard_id: ShardId,
        rules: Leader,
        opened: ReplicaDirectory,
        links: Sends,
        *,
        ask: Callable[[Ask, int], None],
        serve: Callable[[Micros], Driver],
        give: Give,
    ) -> None:
        self.rules = rules
        self.log = opened.log
        self.driver: Driver | None = None  # none before clients are let in
        self.stepped_down: str | None = None  # why
        self.damage = ""  # of the own log, as it was met
        self.is_unusable = False  # the damaged log, for who leads
        self.outgoing: list[Outgoing] = []
        self._me, self._shard_id = me, shard_id
        self._opened = opened
        self._links = links
        self._ask, self._serve = ask, serve
        self._refills = Refills(me, shard_id, rules.leader_epoch, links, self.log, give)
        self._now = Micros(0)
        self._unasked: list[Outgoing] = []  # answers that no round was asked for yet
        self._rounds: deque[tuple[int, list[Outgoing]]] = deque()
        self._held_bytes = 0  # of both

    # ------------------------------------------------------------------ what happens

    def begin(self, now: Micros) -> None:
        """The log is at hand, and nobody knows yet that this server leads."""
        self.log.keep_recent()
        self.rules.kept_from = self.log.kept_from
        self.do(self.rules.local_synced(self.log.durable_serial, now), now)
        self.do(self.rules.tick(now), now)

    def heard(self, member: ServerId, message: MemberMessage, now: Micros) -> None:
        """Another replica says something."""
        self._refills.heard(member, message, now)
        actions = self.rules.heard(member, message, now)
        if isinstance(message, RefillWanted):
            self._refills.wanted(member, message, now)
        self.do(actions, now)

    def tick(self, now: Micros) -> None:
        """Time passed."""
        self.rules.kept_from = self.log.kept_from
        for member in self._refills.ended(now):
            self.do(self.rules.refill_ended(member), now)
        self.damage = self.damage or self._refills.damage
        self.damage = self.damage or self.log.reclaiming.damage
        if self.driver is not None:
            self.damage = self.damage or self.driver.damage
        self._hold_frames(now)
        self.do(self.rules.tick(now), now)

    def _hold_frames(self, now: Micros) -> None:
        """What members need that catch up is not compacted."""
        held = [each for each in (self._refills.held, self.rules.caught_up_to(now)) if each]
        self.log.reclaiming.hold(min(held, default=None))

    def send_files(self) -> bool:
        """To members that are filled; whether more of it could be sent at once."""
        return self._refills.send()

    def tick_clients(self, now: Micros) -> None:
        """The same for what clients wait for, and for members that have rested for them."""
        self.do(self.rules.sends(now), now)
        if self.driver is not None:
            self.driver.tick(now)
            self._hold_back()

    def next_deadline(self, now: Micros) -> Micros | None:
        """When `tick_clients` is due."""
        waits = None if self.driver is None else self.driver.next_deadline()
        return sooner(waits, self.rules.next_deadline(now))

    def takes_in(self, members: Iterable[ServerId], now: Micros) -> None:
        """These could not answer yet: a large message is on its way to them."""
        for member in members:
            self.rules.takes_in(member, now)

    def reconnected(self, member: ServerId, now: Micros) -> None:
        """What was under way to a member may be lost."""
        self.do(self.rules.reconnected(member, now), now)

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the disk, or for a round, that nothing more is received."""
        is_full = self.driver is not None and self.driver.is_full
        return is_full or self._held_bytes >= HELD_BYTES_MAX

    def receive(self, route: bytes, frames: Sequence[Body], now: Micros) -> None:
        """A client asks something, which the driver decides."""
        assert self.driver is not None
        self.driver.receive(route, frames, now)
        if self.driver.outgoing:
            self._hold_back()

    def tell_of_itself(self, route: bytes, frames: Sequence[Body], now: Micros) -> None:
        """A client asks how this process is: that is true whoever leads."""
        driver = self.driver
        assert driver is not None
        self._hold_back()
        driver.receive(route, frames, now)
        self.outgoing += driver.outgoing
        driver.outgoing = []

    def ask_round(self, now: Micros) -> None:
        """Ask whether this server still leads, if somebody waits for that and nothing is asked."""
        if self._unasked and not self._rounds and self.stepped_down is None:
            answers, self._unasked = self._unasked, []
            self._rounds.append((self.rules.rounds.newest + 1, answers))
            self.do(self.rules.confirm(now), now)

    def commit(self, now: Micros) -> Group | None:
        """What is to be written now; it is on its way to the others then."""
        if self.stepped_down is not None:
            return None
        group = self.log.take_group() if self.driver is None else self.driver.commit(now)
        if group is not None:
            size = self.log.recent_bytes_after(self.rules.last)
            self.do(self.rules.appended(Serial(group.last_serial), now, size=size), now)
        return group

    def send_ahead(self, now: Micros) -> None:
        """Much that waits for the group before its own is on its way already."""
        log, rules = self.log, self.rules
        if log.last_serial > rules.last and self.stepped_down is None:
            size = log.recent_bytes_after(rules.last)
            self.do(rules.gathers(log.last_serial, size, now), now)

    def written(self, group: Group, now: Micros) -> None:
        """It is on this disk."""
        if self.driver is None:
            serial = self.log.finished(group)
        else:
            serial = self.driver.written(group, now)
        self.do(self.rules.local_synced(serial, now), now)

    def close(self) -> None:
        """This server leads no more; who waits for an answer asks another one."""
        self._refills.close()
        self.log.reclaiming.hold(None)

    # ------------------------------------------------------------------ what is done

    def do(self, actions: Sequence[LeaderAction], now: Micros) -> None:
        """In their order, and nothing once this server has stepped down."""
        self._now = now
        for action in actions:
            if self.stepped_down is not None:
                return
            match action:
                case SendFrames(member, after, bytes_max):
                    self._send_frames(member, after, bytes_max)
                case SendToMember(member, message):
                    self._links.send(member, encode_replica(message))
                case StartRefill(member, tail):
                    self._refills.start(member, tail, now)
                case AskCoordinator(ask, revision):
                    self._ask(ask, revision)
                case CommitTo(serial):
                    self._commit_to(serial)
                case ConfirmedTo(asked):
                    self._release(asked)
                case ServeClients():
                    self._let_clients_in(now)
                case StepDown(why):
                    self.stepped_down = why
                case BeginEpoch(leader_epoch):
                    record = EpochBegan(leader_epoch, self._me)
                    self.log.begin_epoch(record)
                    self._opened.began(record)
                case _:
                    assert_never(action)

    def _let_clients_in(self, now: Micros) -> None:
        try:
            self.driver = self._serve(now)
        except Corrupt as damage:  # messages that are kept are in no segment
            self.damage, self.is_unusable = damage.detail, True
            self.stepped_down = "its log is damaged"
            return
        self._hold_back()

    def _send_frames(self, member: ServerId, after: Serial, bytes_max: int) -> None:
        rules = self.rules
        try:
            run = self.log.frames_after(after, bytes_max) if bytes_max else None
            previous = run.previous if run is not None else self.log.place_of(after)
        except Corrupt as damage:
            self.damage = damage.detail
            return
        if previous is None:
            return  # it was compacted away since: the next tick knows
        count = 0 if run is None else run.last.serial - previous.serial
        append = Append(
            self._shard_id,
            rules.leader_epoch,
            place(previous),
            count,
            rules.commit,
            rules.rounds.newest,
        )
        frames = b"" if run is None else run.frames
        has_left = self._links.send(member, encode_replica(append, frames))
        if has_left and run is not None:
            self.do(rules.sent(member, Serial(run.last.serial), len(frames), self._now), self._now)
        elif not has_left and frames:
            rules.unsent(member)

    def _commit_to(self, serial: Serial) -> None:
        """Nobody loses this any more: it is told to those who wait for it."""
        driver = self.driver
        if driver is None:
            # What was gathered under the leader before came a little earlier: nothing gets too old.
            came_at = None if self._opened.stamped_at is None else self._now
            self._opened.apply_to(serial, came_at)
            return
        self._hold_back()
        driver.committed(serial, self._now)
        self.outgoing += driver.outgoing
        driver.outgoing = []

    def _hold_back(self) -> None:
        """What the driver answers without a commit waits for a round."""
        driver = self.driver
        if driver is not None and driver.outgoing:
            self._unasked += driver.outgoing
            self._held_bytes += _size(driver.outgoing)
            driver.outgoing = []

    def _release(self, asked: int) -> None:
        """These answers were true when the round was asked, which is after they were made."""
        while self._rounds and self._rounds[0][0] <= asked:
            answers = self._rounds.popleft()[1]
            self._held_bytes -= _size(answers)
            self.outgoing += answers


def _size(answers: Sequence[Outgoing]) -> int:
    return sum(len(frame) for _, frames in answers for frame in frames)
