"""The leader's end of transfers of files: a member that frames cannot bring up to date gets files.

How it works. What the rules want (`start`) is pinned and read for its checksums, then offered until
the member asks for the first part. From then on it is sent what it asks for, a little in each turn
of the loop, so that the leader's clients do not notice. The transfer ends when the member says
anything else than what it wants next: it has the files, or begins anew; and when it says nothing
for `QUIET`, or this server leads no more. A member that was sent everything and comes back for the
same may have been sent damaged bytes: then every frame of the files is checked before they are
offered again.

Laws: what a member is owed is bounded by `sent_files.PARTS_MAX` and the connection's own limit. A
member whose transfer came to nothing waits, each time twice as long.
"""

import logging
from dataclasses import dataclass

from oncemq.cluster.replica_directory import place
from oncemq.cluster.sends import Sends
from oncemq.cluster.transfer.sent_files import Give, SentFiles
from oncemq.protocol.names import LeaderEpoch, Micros, Serial, ServerId, ShardId
from oncemq.protocol.replicas.messages import (
    Appended,
    MemberMessage,
    Mismatch,
    Place,
    RefillBegin,
    RefillPart,
    RefillWanted,
)
from oncemq.storage.log.log import Log
from oncemq.storage.shortage import NO_DESCRIPTORS
from oncemq.wire.replica_codec import encode_replica

SECOND = 1_000_000
OFFER_AGAIN = Micros(SECOND)
QUIET = Micros(10 * SECOND)
WAIT_FIRST, WAIT_MAX = Micros(SECOND), Micros(60 * SECOND)
TURN_PARTS = 2  # sent in one turn of the loop, of all transfers together

logger = logging.getLogger("oncemq.server")


@dataclass(slots=True)
class _Past:
    """What came of a member's transfers so far."""

    wait: Micros = Micros(0)
    from_then: Micros = Micros(0)
    was_sent_whole: bool = False


class Refills:
    """Of one leader, one for each member at most."""

    def __init__(
        self,
        me: ServerId,
        shard_id: ShardId,
        leader_epoch: LeaderEpoch,
        links: Sends,
        log: Log,
        give: Give,
    ) -> None:
        self.damage = ""  # of this server's own files
        self._me, self._shard_id, self._leader_epoch = me, shard_id, leader_epoch
        self._links, self._log, self._give = links, log, give
        self._waiting: dict[ServerId, Place] = {}  # the ends of their logs
        self._transfers: dict[ServerId, SentFiles] = {}
        self._past: dict[ServerId, _Past] = {}
        self._over: list[ServerId] = []
        self._checksums: dict[tuple[str, int], int] = {}

    # ------------------------------------------------------------------ what happens

    def start(self, member: ServerId, tail: Place, now: Micros) -> None:
        """Pin a checkpoint and the segments behind it, and say so to the member."""
        if member in self._transfers:
            self._end(member, "it begins anew", now)
        self._waiting[member] = tail
        self._begin(now)

    def heard(self, member: ServerId, message: MemberMessage, now: Micros) -> None:
        """A member says anything."""
        transfer = self._transfers.get(member)
        if transfer is None or transfer.incarnation is None:
            return
        if not isinstance(message, Appended | Mismatch):
            return
        life = message.answered.life
        if life.incarnation == transfer.incarnation and transfer.was_sent_whole:
            self._end(member, "", now)
        elif life.incarnation != transfer.incarnation and life.openings:
            self._end(member, "it has another directory", now)

    def wanted(self, member: ServerId, message: RefillWanted, now: Micros) -> None:
        """A member wants bytes of a file."""
        transfer, asks = self._transfers.get(member), message.answered.life.incarnation
        if message.leader_epoch != self._leader_epoch:
            return
        if transfer is None or transfer.incarnation not in (None, asks):
            self._send_part(member, message.name, message.position, b"")
            return
        if not transfer.has(message.name, message.position):
            logger.warning(
                "part refused member=%s file=%s position=%d: there is none",
                member, message.name, message.position,
            )  # fmt: skip
            self._send_part(member, message.name, message.position, b"")
            return
        transfer.incarnation, transfer.heard_at = asks, now
        transfer.want(message.name, message.position)

    def ended(self, now: Micros) -> list[ServerId]:
        """Whose files are not kept any more since this was last asked."""
        for member, transfer in list(self._transfers.items()):
            if transfer.damage:
                self.damage = transfer.damage
                self._end(member, f"this server cannot read its log: {transfer.damage}", now)
            elif transfer.heard_at is not None and now - transfer.heard_at >= QUIET:
                self._end(member, "nothing was heard of it", now)
        self._begin(now)
        self._offer(now)
        over, self._over = self._over, []
        return over

    @property
    def held(self) -> Serial | None:
        """Behind this record nothing is to be compacted: members that are filled go on there."""
        return min((each.end.serial for each in self._transfers.values()), default=None)

    def send(self) -> bool:
        """Some of what was read; whether more of it could be sent at once."""
        left = TURN_PARTS
        for transfer in self._transfers.values():
            while transfer.ready and left:
                part = transfer.ready[0]
                if not self._send_part(transfer.member, *part):
                    break  # the connection says when there is room
                left -= 1
                transfer.sent(transfer.ready.popleft())
        return not left and any(transfer.ready for transfer in self._transfers.values())

    def close(self) -> None:
        """Nothing is pinned any more."""
        for transfer in self._transfers.values():
            transfer.close()
        self._transfers.clear()
        self._waiting.clear()

    # ------------------------------------------------------------------ the steps of that

    def _begin(self, now: Micros) -> None:
        """Pin files for those whose time has come."""
        for member, tail in list(self._waiting.items()):
            past = self._past.setdefault(member, _Past())
            end = self._log.finished_link
            if now < past.from_then or end is None:
                continue
            try:
                pinned = self._log.pin()
            except OSError as error:
                if error.errno not in NO_DESCRIPTORS:
                    self.damage = f"a file of the log cannot be opened ({error})"
                logger.warning("files not pinned member=%s error=%r", member, error)
                past.from_then = Micros(now + WAIT_FIRST)
                continue
            del self._waiting[member]
            if past.was_sent_whole:
                logger.warning("files are checked: it had all of them member=%s", member)
            self._transfers[member] = SentFiles(
                member,
                tail,
                place(end),
                pinned,
                self._give,
                doubts=past.was_sent_whole,
                checksums=self._checksums,
            )
            logger.info(
                "files pinned member=%s files=%d bytes=%d", member, len(pinned.files), pinned.size
            )
        self._offer(now)

    def _offer(self, now: Micros) -> None:
        """Say what there is, until the member asks for some of it."""
        for transfer in self._transfers.values():
            files = transfer.files
            if transfer.incarnation is not None or files is None or transfer.damage:
                continue
            if transfer.heard_at is None:
                transfer.heard_at = now
            elif now - transfer.said_at < OFFER_AGAIN:
                continue
            transfer.said_at = now
            begin = RefillBegin(
                self._shard_id, self._leader_epoch, transfer.tail, transfer.end, files
            )
            self._links.send(transfer.member, encode_replica(begin))

    def _send_part(self, member: ServerId, name: str, position: int, data: bytes) -> bool:
        part = RefillPart(self._shard_id, self._leader_epoch, name, position)
        return self._links.send(member, encode_replica(part, data))

    def _end(self, member: ServerId, why: str, now: Micros) -> None:
        """`why` empty: the member has the files."""
        transfer, past = self._transfers.pop(member), self._past[member]
        transfer.close()
        self._over.append(member)
        past.was_sent_whole = transfer.was_sent_whole and bool(why)
        if not why:
            past.wait = Micros(0)
            logger.info("files sent member=%s bytes=%d", member, transfer.size)
            return
        past.wait = Micros(min(WAIT_MAX, max(WAIT_FIRST, 2 * past.wait)))
        past.from_then = Micros(now + past.wait)
        logger.warning("files not sent member=%s why=%s", member, why)
