"""The parts that a server has in a shard, one after the other: what ends one, and what comes next.

Which part it is to have, `Member` says; `Following`, `Leading` and `Filling` are the parts.

How a part ends. Whoever steps down, cuts its log or is filled with files opens the directory anew:
memory may hold what was never committed. That waits until nothing is under way to the disk, since a
thread writes there; meanwhile (`closing`) nothing is heard and nobody is answered. A log that is
damaged is put aside in the same way, when `mending` says so.

Laws: nothing is said before the cluster knows this opening of the directory. A directory that is
filled has another incarnation, and has to be let in anew.
"""

import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from msgspec.structs import replace

from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.following import Closing, Following
from oncemq.cluster.keeper import Keeper
from oncemq.cluster.leading import Leading
from oncemq.cluster.mending import GoesBack, Mending, SetAside
from oncemq.cluster.replica_directory import ReplicaDirectory, ReplicaPlace, format_of, make_empty
from oncemq.cluster.sends import Sends
from oncemq.cluster.transfer.filling import Filling
from oncemq.cluster.transfer.sent_files import Give
from oncemq.errors import Corrupt, StorageRefused
from oncemq.protocol.names import Micros, Serial, ServerId
from oncemq.protocol.replicas.messages import LeaderMessage, MemberMessage, RefillBegin, Stale
from oncemq.protocol.step import Body
from oncemq.replication.actions import (
    AskCoordinator,
    BeginRefill,
    Halt,
    MemberAction,
    PromiseEpoch,
    Reopen,
    StartLeading,
    StepDown,
)
from oncemq.replication.leader import Leader
from oncemq.replication.member import Member
from oncemq.replication.view import ShardView
from oncemq.server.driver import Driver
from oncemq.server.events import Events
from oncemq.server.housekeeping import Housekeeping
from oncemq.server.served import Outgoing
from oncemq.storage.log.new_replica import holds_log
from oncemq.storage.log.refill import discard
from oncemq.storage.shortage import DISK_FULL
from oncemq.wire.replica_codec import encode_replica
from oncemq.wire.replica_seal import sealed

logger = logging.getLogger("oncemq.server")

Serve = Callable[[ReplicaDirectory, Leader, Micros], Driver]
PAUSE = Micros(1_000_000)  # after a filling that came to nothing


class Parts:
    """From the start of a server to its end."""

    def __init__(
        self,
        place: ReplicaPlace,
        agreement: ShardAgreement,
        links: Sends,
        events: Events,
        serve: Serve,
        give: Give,
        now: Micros,
    ) -> None:
        self.place = place
        self.opened: ReplicaDirectory | None = None
        self.housekeeping: Housekeeping | None = None
        self.following: Following | None = None
        self.leading: Leading | None = None
        self.filling: Filling | None = None
        self.closing: Closing | StepDown | SetAside | GoesBack | None = None
        self.mending = Mending(place.me, place.home, agreement)
        self.trouble = ""  # why there is no log, or why it was not filled
        self.outgoing: list[Outgoing] = []
        self._agreement, self._links = agreement, links
        self._events, self._serve, self._give = events, serve, give
        self._member: Member | None = None
        self._now = self._begin_from = now
        self._number, self._is_proven = 0, False  # of the part before this one
        try:
            if holds_log(place.home.disk, place.home.directory) is not None:
                self._open(None)
        except (Corrupt, OSError) as trouble:
            self.mending.met_at_opening(trouble)

    @property
    def driver(self) -> Driver | None:
        """While clients are served."""
        leading = self.leading
        if leading is None or self.closing is not None or leading.stepped_down is not None:
            return None
        return leading.driver

    @property
    def is_let_in(self) -> bool:
        """Whether the cluster knows, or knew, this opening of the directory."""
        return self._member is not None and self._member.may_follow

    # ------------------------------------------------------------------ what happens

    def tick(self, now: Micros) -> None:
        """Time passed."""
        self._now = now
        if self.closing is not None:
            return
        if self.leading is not None:
            self.leading.tick(now)
        elif self.filling is not None:
            self.filling.tick(now)
        elif self.opened is None:
            if now >= self._begin_from:
                self._begin()
        elif self._is_of_another_log():
            self.opened.close()
            self.opened = self.following = self.housekeeping = self._member = None
        elif (ends_for := self.mending.compares()) is not None:
            self.closing = ends_for
        elif self._member is not None:
            self._do(self._member.tick(self.opened.promised.leader_epoch, now))
        self._mend()
        self.look()

    def hear_leader(self, route: bytes, message: LeaderMessage, body: Body, now: Micros) -> None:
        """A leader says something, of this epoch or of another."""
        self._now = now
        if self.closing is not None:
            return
        leading, member = self.leading, self._member
        if leading is not None:
            leading.do(leading.rules.challenged(message.leader_epoch), now)
            mine = leading.rules.leader_epoch
            if message.leader_epoch < mine:
                stale = Stale(self.place.shard_id, message.leader_epoch, mine)
                self.outgoing.append((route, self._sealed(encode_replica(stale))))
        elif self.filling is not None:
            self.filling.receive(route, message, body, now)
        elif self.following is not None and member is not None and member.may_follow:
            self.following.receive(route, message, body, now)
        self.look()

    def hear_member(self, server: ServerId, message: MemberMessage, now: Micros) -> None:
        """Another replica answers."""
        self._now = now
        if self.closing is None and self.leading is not None:
            self.leading.heard(server, message, now)

    def refused(self, revision: int, now: Micros) -> None:
        """The coordinator refused what was asked."""
        if self.leading is not None:
            self.leading.rules.refused(revision)
        elif self._member is not None:
            self._member.refused(now)

    def told(self, now: Micros) -> None:
        """The coordinator says how the shard is."""
        self._now = now
        agreement, view = self._agreement, self._agreement.view
        if view is None or self.opened is None or self.closing is not None:
            return
        if self.leading is not None:
            self.leading.do(self.leading.rules.told(view, now), now)
        elif self.following is not None:
            if self._member is None:
                self._member = Member(self.place.me, self.opened.life, self.place.limits)
            promised = self.opened.promised.leader_epoch
            self._do(self._member.told(view, agreement.alive, promised, now))
        self.look()

    def drain(self) -> None:
        """Give the shard to another, where there is one; who has none goes on."""
        if self.leading is not None:
            self.leading.rules.drain()

    # ------------------------------------------------------------------ from one to the next

    def look(self) -> None:
        """Whether the part that this server has is over, and what it leaves to be sent."""
        leading, following, filling = self.leading, self.following, self.filling
        part = leading or following or filling
        if part is not None and part.outgoing:
            self.outgoing += (
                part.outgoing
                if part is leading
                else [(route, self._sealed(frames)) for route, frames in part.outgoing]
            )
            part.outgoing = []
        if self.closing is not None:
            return
        if leading is not None and leading.stepped_down is not None:
            logger.warning(
                "stepped down shard=%d why=%s", self.place.shard_id, leading.stepped_down
            )
            self.closing = StepDown(leading.stepped_down)
            if leading.is_unusable:
                self.mending.met(leading.damage, opens=False)
        elif following is not None and following.closing is not None:
            self.closing = following.closing
        elif filling is not None and filling.is_over:
            self._filled(filling)

    def _sealed(self, frames: Sequence[Body]) -> Sequence[Body]:
        return sealed(frames, self._agreement.secret)

    def reopen(self, now: Micros) -> None:
        """Nothing is under way to the disk: what is there is opened, and no more than that."""
        self._now = now
        closing, opened = self.closing, self.opened
        assert opened is not None
        route = b""
        if self.leading is not None:
            self._is_proven = self.leading.rules.is_proven
            self.leading.close()
        elif self.following is not None:
            route = self.following.closing_route
            self._number = self.following.rules.number
            self._is_proven = self.following.rules.is_proven
        self.leading = self.following = self.housekeeping = self.closing = None
        opened.close()
        shard_id = self.place.shard_id
        match closing:
            case StepDown():
                self._open_again(None)
            case Reopen(cut_to):
                logger.warning("log is cut shard=%d serial=%d", shard_id, cut_to)
                self._open_again(cut_to)
            case BeginRefill(begin):
                self._fill(begin, route)
            case GoesBack():
                self._forget_log()
            case SetAside():
                self._forget_log()
                self.mending.set_aside()
            case Halt(why):
                raise StorageRefused(why, code="replica_halted")
            case None:
                raise AssertionError("no part is over")
            case _:
                assert_never(closing)
        self.told(now)

    def close(self) -> None:
        """The server ends; nothing is under way to the disk."""
        if self.leading is not None:
            self.leading.close()
        if self.filling is not None:
            self.filling.close()
        elif self.opened is not None:
            self.opened.close()

    # ------------------------------------------------------------------ the steps of that

    def _begin(self) -> None:
        """Without a log: one of the cluster's shard, or, where there is none, a new one."""
        if self.mending.is_unusable:
            if not self.mending.may_set_aside:
                return
            self.mending.set_aside()
        if not self._agreement.has_snapshot:
            return
        home, shard = self.place.home, self._agreement.shard
        try:
            if shard is not None:
                make_empty(home, format_of(shard))
            self._open(None)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._pause(f"the disk is full, without room for an empty log in {home.directory}")

    def _is_of_another_log(self) -> bool:
        """Whether another server founded the shard first, while this log is new and empty."""
        shard, opened = self._agreement.shard, self.opened
        if shard is None or opened is None or opened.log.last_serial:
            return False
        return shard.identity != opened.log.identity.hex()

    def _open(self, cut_to: Serial | None) -> None:
        place, before = self.place, None if self.opened is None else self.opened.life
        opening = None if before is None else before.openings
        opened = ReplicaDirectory(place.home, cut_to=cut_to, opening=opening)
        self.opened = opened
        self.following = Following(
            place.shard_id, opened, number=self._number, is_proven=self._is_proven
        )
        self._keeper = Keeper(opened, self._events)
        self.housekeeping = Housekeeping(self._keeper, self._now)
        if opened.life == before and self._member is not None:
            self._member.reopened()
        elif opened.life != before:
            self._member = None
            form, promised = opened.log.form, opened.newest_epoch
            self._agreement.open(opened.life, form.identity, form.tag, form.generation, promised)

    def _open_again(self, cut_to: Serial | None) -> None:
        """The same directory; what is damaged in it by now is put aside."""
        if not self.mending.is_unusable:
            try:
                self._open(cut_to)
            except (Corrupt, OSError) as trouble:
                self.mending.met_at_opening(trouble)
        if self.mending.is_unusable:
            self._forget_log()

    def _forget_log(self) -> None:
        """The directory that was open is not this server's replica any more."""
        self.opened = self.following = self.housekeeping = self._member = None
        self._is_proven = False

    def _fill(self, begin: RefillBegin, route: bytes) -> None:
        shard = self._agreement.shard
        assert shard is not None, "nobody follows before the shard is known"
        shard_id, size = self.place.shard_id, sum(each.size for each in begin.files)
        logger.warning("filled anew shard=%d files=%d bytes=%d", shard_id, len(begin.files), size)
        self._forget_log()
        self.filling = Filling(begin, route, self.place.home, format_of(shard), self._now)

    def _filled(self, filling: Filling) -> None:
        """The new log is opened; without one, the directory says that it is half filled."""
        self.filling = None
        shard_id, home, trouble = self.place.shard_id, self.place.home, filling.trouble
        if not trouble:
            try:
                self._open(None)
            except Corrupt as damage:
                discard(home.disk, home.directory)
                trouble = f"what the leader sent does not hold: {damage.detail}"
        if trouble:
            logger.warning("not filled shard=%d why=%s", shard_id, trouble)
            self._pause(f"not filled with the leader's files: {trouble}")
            return
        self.trouble = ""
        logger.info("filled shard=%d bytes=%d", shard_id, filling.filled_bytes)

    def _pause(self, trouble: str) -> None:
        """Whoever has no log begins with an empty one, after a while."""
        self.trouble, self._begin_from = trouble, Micros(self._now + PAUSE)

    def _mend(self) -> None:
        """What is to be done about damage that was met while the log is in use."""
        if self.leading is not None:
            self.mending.leads(self.leading)
        elif self.following is not None and self.opened is not None:
            is_whole = self._member is not None and self._member.is_whole
            if self.mending.follows(self.opened, is_whole=is_whole):
                self.closing = SetAside()

    def _do(self, actions: Sequence[MemberAction]) -> None:
        opened, following = self.opened, self.following
        assert opened is not None
        assert following is not None
        for action in actions:
            match action:
                case PromiseEpoch(leader_epoch):
                    opened.promise(leader_epoch)
                    following.has_promised(leader_epoch)
                case AskCoordinator(ask, revision):
                    self._agreement.ask(ask, revision)
                case StartLeading(view):
                    self._lead(view, opened, following)
                case _:
                    assert_never(action)

    def _lead(self, view: ShardView, opened: ReplicaDirectory, following: Following) -> None:
        place, shard = self.place, self._agreement.shard
        assert shard is not None
        limits = replace(place.limits, min_in_sync=shard.min_in_sync)
        self._number, self.following = following.rules.number, None
        rules = Leader(
            place.me,
            place.shard_id,
            view,
            last=opened.log.last_serial,
            starts=following.rules.starts,
            commit=following.rules.commit,
            kept_from=opened.log.kept_from,
            is_proven=following.rules.is_proven,
            limits=limits,
            now=self._now,
        )
        logger.info("elected shard=%d epoch=%d", place.shard_id, view.leader_epoch)

        def serve(now: Micros) -> Driver:
            driver = self._keeper.driver = self._serve(opened, rules, now)
            return driver

        self.leading = Leading(
            place.me, place.shard_id, rules, opened, self._links,
            ask=self._agreement.ask, serve=serve, give=self._give,
        )  # fmt: skip
        self.leading.begin(self._now)
