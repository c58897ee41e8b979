"""One server's replica of one shard, as the server's loop drives it.

It stands where a server that is alone has its driver.

It tells what comes in from whom: clients are answered by the driver while this server leads, and
else told who does; leaders, members and the coordinator are for the part that it has (`parts`).

Laws: what a client asks of who does not lead is refused with the leader's address, and changes
nothing; but for status, which every server answers for itself, at once. Nobody waits for a leader
that waits for others itself (`Leader.stalls`): whoever does is told to ask again, and why.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from oncemq.broker.expiry import Calendar
from oncemq.broker.given import Facts
from oncemq.broker.state.shard import Shard
from oncemq.cluster.agreement.shard_agreement import AskRefused, ShardAgreement, Told
from oncemq.cluster.leading import Leading
from oncemq.cluster.logged_troubles import LoggedTroubles
from oncemq.cluster.open_requests import OpenRequests
from oncemq.cluster.parts import Parts
from oncemq.cluster.replica_directory import ReplicaDirectory, ReplicaPlace
from oncemq.cluster.sealed_links import SealedLinks
from oncemq.cluster.serving import Serving, down_for
from oncemq.cluster.standing import standing
from oncemq.coordination.coordinator import Coordinator
from oncemq.protocol.names import Micros, ServerId
from oncemq.protocol.replicas.messages import LeaderMessage, MemberMessage
from oncemq.protocol.replies import RefusedReply, Reply, StatusReport, not_leader
from oncemq.protocol.requests import StatusRequest
from oncemq.protocol.step import Body
from oncemq.replication.leader import Leader
from oncemq.server.driver import Driver
from oncemq.server.feed import Pushes
from oncemq.server.served import Outgoing, sooner
from oncemq.server.worker import Task, Worker
from oncemq.storage.log.log import Log
from oncemq.storage.log.writer import Group
from oncemq.wire import codec
from oncemq.wire.replica_codec import decode_replica, is_of_replicas
from oncemq.wire.replica_seal import is_sealed

TICK = Micros(50_000)
STOP_MICROS = Micros(3_000_000)  # to give the shard away, before the server ends anyway

logger = logging.getLogger("oncemq.server")


class Links(Protocol):
    """The connections to the other servers: see `links`."""

    def meet(self, addresses: Mapping[ServerId, str]) -> None: ...
    def send(self, server: ServerId, frames: Sequence[Body]) -> bool: ...
    def receive(self) -> Iterable[tuple[ServerId, Sequence[Body]]]: ...
    def connected(self) -> list[ServerId]: ...
    def taking(self) -> Iterable[ServerId]: ...
    def look(self, now: Micros) -> None: ...
    def close(self) -> None: ...


class Replica:
    """From the start of a server to its end."""

    has_news = True  # it has to be asked in every turn

    def __init__(
        self,
        place: ReplicaPlace,
        agreement: ShardAgreement,
        coordinator: Coordinator,
        links: Links,
        serving: Serving,
        now: Micros,
        *,
        address: str,
    ) -> None:
        self.outgoing: list[Outgoing] = []
        self.calendar = Calendar()
        self.serving = serving
        self.events = serving.events
        self._agreement, self._coordinator = agreement, coordinator
        self._links = links
        self._address = address  # that others are told
        self._now = self._tick_due = now
        self._group_is_under_way = False
        self._passed = 0  # while nobody led: see `down_for`
        self._open_requests = OpenRequests()
        self._stalls: str | None = None  # why this leader answers nobody
        self._subjects: set[bytes] = set()  # that somebody listens to, on this server's feed
        self._no_pushes = Pushes(Shard(0))
        self._stop_until: Micros | None = None
        self._troubles = LoggedTroubles(place.me)
        self._parts = Parts(
            place,
            agreement,
            SealedLinks(links, agreement),
            serving.events,
            self._serve,
            self._read_aside,
            now,
        )
        self._sends_files = False  # there is more to be sent at once

    # ------------------------------------------------------------------ as the loop asks a driver

    @property
    def log(self) -> Log:
        """Whose groups are written."""
        assert self._parts.opened is not None
        return self._parts.opened.log

    @property
    def pushes(self) -> Pushes:
        """What the feed is to send."""
        return self._no_pushes if (driver := self._parts.driver) is None else driver.pushes

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should be received."""
        leading, following = self._parts.leading, self._parts.following
        if leading is not None:
            return leading.is_full
        return following is not None and following.is_full

    def receive(self, route: bytes, frames: Sequence[Body], now: Micros) -> None:
        """One message from the network, whatever it is."""
        leading = self._parts.leading
        if is_of_replicas(frames):
            self._hear(route, frames, now)
        elif leading is None or self._parts.driver is None:
            self._refuse(route, frames)
        elif codec.opcode_of(frames) == StatusRequest.opcode:
            leading.tell_of_itself(route, frames, now)
        elif self._stalls is not None or self._gives_away(leading, now):
            self._refuse(route, frames)
        else:
            self._open_requests.asked(route, frames)
            leading.receive(route, frames, now)

    def bind(
        self,
        *,
        reaches: Callable[[bytes, Sequence[Body]], bool],
        takes: Callable[[bytes], bool],
        hand_over: Callable[[], None],
        connections: Callable[[], Facts],
    ) -> None:
        """The loop's sockets. What was read for an answer waits for a round, not for the loop."""
        serving = self.serving
        serving.reaches, serving.takes, serving.connections = reaches, takes, connections

    def listens(self, *, joined: bool, subject: bytes) -> None:
        """Somebody listens to a subject of the feed, or nobody any more."""
        (self._subjects.add if joined else self._subjects.discard)(subject)
        self.pushes.changed(joined=joined, subject=subject)

    def keep_time(self, calendar: Calendar, now: Micros) -> None:
        """How the clock stands; to the shard it is told by who leads."""
        self.calendar = calendar
        if (driver := self._parts.driver) is not None:
            driver.keep_time(self._shard_calendar(), now)

    def commit(self, now: Micros) -> Group | None:
        """What is to be written now."""
        parts = self._parts
        group: Group | None = None
        if parts.closing is None:
            if parts.leading is not None:
                group = parts.leading.commit(now)
            elif parts.following is not None:
                group = parts.following.commit()
        if group is not None:
            self._group_is_under_way = True
        return group

    def written(self, group: Group, now: Micros) -> None:
        """It is on this disk."""
        self._group_is_under_way = False
        parts = self._parts
        if parts.leading is not None:
            parts.leading.written(group, now)
        elif parts.following is not None:
            parts.following.written(group)

    def next_deadline(self) -> Micros | None:
        """When the next tick is due."""
        if self._sends_files:
            return self._now
        leading = None if self._parts.driver is None else self._parts.leading
        return sooner(self._tick_due, None if leading is None else leading.next_deadline(self._now))

    def next_commit(self) -> Micros | None:
        """When the next commit is due."""
        parts = self._parts
        if (driver := parts.driver) is not None:
            return driver.next_commit()
        is_gathered = parts.closing is None and parts.opened and self.log.has_gathered
        return self._now if is_gathered else None

    def tick(self, now: Micros) -> None:
        """Time passed: of waits that are over, and, now and then, of the rest."""
        if now >= self._tick_due:
            self._tick_due = Micros(now + TICK)
            self._hear_agreement(self._agreement.tick(now), now)
            self._links.look(now)
            if (leading := self._parts.leading) is not None:
                leading.takes_in(self._links.taking(), now)
            self._parts.tick(now)
            self._troubles.look(self._agreement.faults, now)
            leading = self._parts.leading
            self._stalls = None if leading is None else leading.rules.stalls(now)
        if self._parts.leading is not None and self._parts.driver is not None:
            self._parts.leading.tick_clients(now)

    def take_news(self, now: Micros) -> None:
        """What the coordinator and the other servers say; at the end of each turn."""
        self._now = now
        agreement, parts = self._agreement, self._parts
        for event in self._coordinator.take():
            self._hear_agreement(agreement.heard(event, now), now)
        for server, frames in self._links.receive():
            self._hear_member(server, frames, now)
        self.serving.reads.reap()
        self._sends_files = False
        if (leading := parts.leading) is not None and parts.closing is None:
            for server in self._links.connected():
                leading.reconnected(server, now)
            leading.ask_round(now)
            leading.send_ahead(now)
            self._sends_files = leading.send_files()
        self._leave()
        for request, token in agreement.requests:
            self._coordinator.ask(request, token)
        agreement.requests.clear()
        for key, value in agreement.announcements:
            self._coordinator.announce(key, value)
        agreement.announcements.clear()

    def may_stop(self, now: Micros) -> bool:
        """The server is to end: whoever leads gives the shard away first, if that is quick."""
        if self._stop_until is None:
            self._stop_until = Micros(now + STOP_MICROS)
            self._parts.drain()
        leading = self._parts.leading
        gives_up = leading is not None and leading.rules.gives_up(now)
        return not gives_up or self._parts.driver is None or now >= self._stop_until

    def close(self) -> None:
        """Nothing is under way to the disk any more."""
        self._links.close()
        self._coordinator.close()
        self.serving.reads.reap()
        self._parts.close()

    @property
    def recovered(self) -> int:
        """How many records were read again at the start."""
        opened = self._parts.opened
        return 0 if opened is None else opened.report.replayed

    # ------------------------------------------------------------------ as the loop keeps house

    @property
    def busy(self) -> bool:
        """Whether the loop should not sleep."""
        housekeeping = self._parts.housekeeping
        return housekeeping is not None and housekeeping.busy

    def turn(self, janitor: Worker, now: Micros) -> None:
        """One small step; or the end of a part, once nothing is under way to the disk."""
        parts = self._parts
        if parts.closing is None:
            if parts.following is not None:
                parts.following.apply()
            if parts.housekeeping is not None:
                parts.housekeeping.turn(janitor, now)
        elif janitor.idle and not self._group_is_under_way:
            parts.reopen(now)

    # ------------------------------------------------------------------ what others say

    def _hear(self, route: bytes, frames: Sequence[Body], now: Micros) -> None:
        if not self._is_of_this_cluster(frames):
            return
        try:
            message, body = decode_replica(frames)
        except codec.Malformed as fault:
            logger.warning("message of a replica refused detail=%s", fault.refusal.detail)
            return
        if message.shard == self._parts.place.shard_id and isinstance(message, LeaderMessage):
            self._parts.hear_leader(route, message, body, now)

    def _hear_member(self, server: ServerId, frames: Sequence[Body], now: Micros) -> None:
        if not (is_of_replicas(frames) and self._is_of_this_cluster(frames)):
            return
        try:
            message, _ = decode_replica(frames)
        except codec.Malformed as fault:
            logger.warning("answer refused server=%s detail=%s", server, fault.refusal.detail)
            return
        if message.shard == self._parts.place.shard_id and isinstance(message, MemberMessage):
            self._parts.hear_member(server, message, now)

    def _is_of_this_cluster(self, frames: Sequence[Body]) -> bool:
        if is_sealed(frames, self._agreement.secret):
            return True
        self.events.note("stranger_refused", self._now)
        return False

    def _hear_agreement(self, told: Sequence[Told], now: Micros) -> None:
        for each in told:
            if isinstance(each, AskRefused):
                self._parts.refused(each.revision, now)
            else:
                others = {name: state.address for name, state in self._agreement.servers.items()}
                others.pop(self._parts.place.me, None)
                self._links.meet(others)
                self._parts.told(now)
                self._may_write(self._parts.driver)

    def _refuse(self, route: bytes, frames: Sequence[Body]) -> None:
        """Who does not lead says who does, and how it is itself."""
        answer: Reply = self._refusal()
        try:
            token, request, _ = codec.decode_request(frames)
        except codec.Malformed as fault:
            token, answer = fault.token, fault.refusal
        else:
            if isinstance(request, StatusRequest):
                answer = StatusReport(dict(self._told_of_itself()))
        self.outgoing.append((route, codec.encode_reply(token, answer)))

    def _leader(self) -> tuple[str, int]:
        """The address of who leads, and the epoch; never this server's own, which does not."""
        address, leader_epoch = self._agreement.leader_address()
        return "" if address == self._address else address, int(leader_epoch)

    def _read_aside(self, task: Task, then: Task) -> None:
        """Read files for another replica, on a thread where there is one."""
        self.serving.reads.give(task, then)

    def _leave(self) -> None:
        """What is to be sent."""
        parts = self._parts
        parts.look()
        if parts.outgoing:
            outgoing, parts.outgoing = parts.outgoing, []
            self._open_requests.answered(outgoing)
            self.outgoing += outgoing
        if self._open_requests and (parts.driver is None or self._stalls is not None):
            self.outgoing += self._open_requests.told(self._refusal())

    def _gives_away(self, leading: Leading, now: Micros) -> bool:
        """Whether another leads in a moment: who asks here is not refused for that, but asks there.

        Without etcd nobody can take it over, and this server goes on.
        """
        return leading.rules.gives_up(now) and self._agreement.away is None

    def _refusal(self) -> RefusedReply:
        """What is said to who asks here while nobody is answered."""
        leading, trouble = self._parts.leading, self._agreement.trouble
        leader, leader_epoch = self._leader()
        why = ""
        if leading is not None and leading.stepped_down is None:
            why = f"leads, and answers nobody: {self._stalls or leading.rules.refusal(self._now)}"
        elif trouble and not leader:
            why = f"does not lead: {'; '.join(trouble)}"
        return not_leader(leader, leader_epoch, why)

    # ------------------------------------------------------------------ clients

    def _serve(self, opened: ReplicaDirectory, rules: Leader, now: Micros) -> Driver:
        """The epoch's first record is committed: clients are let in."""
        self._passed = down_for(opened, self.calendar, now)
        calendar, leader_epoch = self._shard_calendar(), rules.leader_epoch
        driver = self.serving.driver(opened, leader_epoch, calendar, rules.lacks, now)
        driver.connections = self._told_of_itself
        self._may_write(driver)
        for subject in self._subjects:
            driver.pushes.changed(joined=True, subject=subject)
        shard_id, serial = self._parts.place.shard_id, opened.log.last_serial
        logger.info("leads shard=%d epoch=%d serial=%d", shard_id, leader_epoch, serial)
        return driver

    def _may_write(self, driver: Driver | None) -> None:
        """What every replica reads; an older value than etcd's says less, never more."""
        if driver is not None and (shard := self._agreement.shard) is not None:
            driver.broker.recorder.version = shard.version

    def _shard_calendar(self) -> Calendar:
        return self.calendar._replace(passed=self.calendar.passed + self._passed)

    def _told_of_itself(self) -> Facts:
        """What every server answers about its process, and its part in the shard."""
        facts = standing(self._parts, self._agreement, self._now)
        return {**self.serving.connections(), **self.events.counts, **facts}
