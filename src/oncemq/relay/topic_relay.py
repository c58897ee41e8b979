"""The rules of the relay on one topic: which rows, which numbers, what to free. PURE.

Laws:
- Numbers are tied to rows in the database before they are sent (`TopicStanding.planned`), so that
  whoever sends after a crash sends the same rows in the same batch under the same numbers, and
  the server absorbs the repeat (G2).
- Rows are freed by the same commit that notes their receipt, and by no other. A receipt that says
  "not stored" frees nothing where the rows are required: they wait until somebody would get them.
- One batch of a topic is under way at a time: its order holds (G3), and the server knows its
  receipt word for word.
- No number is given before the server has said where the producer stands on the topic. What does
  not fit (one side is an older copy, the topic is another) stops the topic, with the reason.
- One number may be two rows, in two branches of the server's log: rows lose their numbers where
  they are refused, or the database is restored. So the moment at which the server stored the last
  acknowledged row is kept (`TopicStanding.newest`) and compared: no two branches have it in common.

An event returns a `StandingChange` or nothing; a change is committed before anything else is done.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from oncemq.protocol.generations import UNKNOWN
from oncemq.protocol.names import Micros, ProducerId, Sequence, TopicId
from oncemq.protocol.replies import NO_OFFSET, PutAccepted, RefusedReply, Resumed

ASK_AGAIN = frozenset({"topic_changed", "sequence_gap", "outdated"})
SEND_AGAIN = frozenset({"checksum", "storage_full"})  # nothing is wrong with the rows
AN_OLDER_COPY = (
    "it was restored from an older copy, and messages are missing there. Once that is mended, or "
    "accepted, go on with `once relay retry --anew`"
)
UNWANTED = "unwanted: "  # with it begins why a topic waits, and goes on by itself


class TopicStanding(msgspec.Struct, frozen=True):
    """Where the outbox stands on a topic, as the database keeps it.

    The producer is the outbox itself, whoever runs the relay; each topic has one of its own.
    `planned` are the rows that have numbers, in order: the first has `acknowledged` + 1.
    `last_place` is the place of the transaction in which the acknowledged rows end (what a place
    is, `databases/outbox_schema` says), `planned_place` that of the planned ones. `newest` notes
    when the server stored the last acknowledged row (`42@1700000000000000`); with another number
    it was left by an older version, or is of an earlier topic or producer: rows were published.
    """

    topic: str
    producer: ProducerId
    topic_id: TopicId = TopicId(0)
    acknowledged: Sequence = Sequence(0)
    planned: tuple[int, ...] = ()
    planned_place: int = 0
    last_place: int = 0
    stopped: str = ""
    version: int = 0  # grows with each change: of two relays that meet here, one goes on
    newest: str = ""

    def anew(self, producer: ProducerId) -> "TopicStanding":
        """With other numbers, from 1, on whatever topic has the name: a person said so."""
        return TopicStanding(
            self.topic,
            producer,
            last_place=self.last_place,
            version=self.version + 1,
            newest=_note(Sequence(0), self.moment) if self.has_published else "",
        )

    def again(self) -> "TopicStanding":
        """Stopped no more."""
        return msgspec.structs.replace(self, stopped="", version=self.version + 1)

    @property
    def waits(self) -> bool:
        """Whether it is tried again by itself: nobody would get its messages yet."""
        return self.stopped.startswith(UNWANTED)

    @property
    def has_published(self) -> bool:
        """Whether rows have a receipt: on this topic, or on one that had its name before."""
        return self.acknowledged > 0 or self.last_place > 0 or bool(self.newest)

    @property
    def moment(self) -> Micros:
        """When the server stored the last acknowledged row; 0: nobody noted it."""
        number, _, moment = self.newest.partition("@")
        is_noted = self.acknowledged > 0 and number == str(self.acknowledged)
        return Micros(int(moment)) if is_noted and moment.isdecimal() else UNKNOWN

    @property
    def first_sequence(self) -> Sequence:
        """The number of the first planned row."""
        return Sequence(self.acknowledged + 1)

    @property
    def last_sequence(self) -> Sequence:
        """The highest number that was ever given on this topic."""
        return Sequence(self.acknowledged + len(self.planned))


def _note(number: Sequence, moment: Micros) -> str:
    return f"{number}@{moment}"


class Row(NamedTuple):
    """A row that may be sent, without its bytes. `fault`: why it cannot be, or empty."""

    id: int
    place: int
    size: int
    fault: str = ""


class StandingChange(NamedTuple):
    """What to commit, at once and only if the standing is still what it was."""

    before: TopicStanding
    after: TopicStanding
    freed: tuple[int, ...] = ()
    set_aside: tuple[int, ...] = ()
    reason: str = ""


class AskStanding(NamedTuple):
    """Ask the server where the producer stands on the topic."""


class NumberRows(NamedTuple):
    """Give numbers to the next rows, if there are any."""


class Send(NamedTuple):
    """Put these rows, as one batch."""

    first_sequence: Sequence
    rows: tuple[int, ...]


@dataclass(slots=True)
class TopicRelay:
    """One topic in the hands of one relay."""

    standing: TopicStanding
    sets_aside: bool = False  # poison is put aside; else it stops the topic
    required: bool = True  # rows that nobody would get wait; else the server discards them
    notes: bool = True  # the database has a column for `TopicStanding.newest`
    sure: bool = False  # the server has told this relay where it stands
    permit: int = 0  # which the server gave with that: copies from before it are void
    inherited: bool = False  # the planned rows may have been sent by an earlier relay
    sends: int = 0  # of the planned rows, by this one
    under_way: bool = False
    put_off: bool = False  # the server has no room, or nobody wants the rows: later
    put_offs: int = 0  # in a row
    refusal: str = ""  # of the planned rows: believed once a resume does not find them
    singly: int = 0  # so many rows go one by one: a refused one is among them
    change: StandingChange | None = None  # decided, not yet committed

    def __post_init__(self) -> None:
        self.inherited = bool(self.standing.planned)

    @property
    def may_be_stored(self) -> bool:
        """Whether a copy of the planned rows is unaccounted for (the last one was answered)."""
        return self.inherited or self.sends > 1

    @property
    def goes_on(self) -> bool:
        """Whether there is something to do, now or once what was decided is committed."""
        standing = self.standing if self.change is None else self.change.after
        is_stopped = standing.stopped and not standing.waits
        return not (self.under_way or self.put_off or is_stopped)

    def next(self) -> AskStanding | NumberRows | Send | None:
        """What to do now; None while something is under way, put off, or the topic is stopped."""
        if self.change is not None or not self.goes_on:
            return None
        if not self.sure:
            return AskStanding()
        if not self.standing.planned:
            return NumberRows()
        return Send(self.standing.first_sequence, self.standing.planned)

    def committed(self) -> None:
        """The change is in the database: it holds from now on."""
        assert self.change is not None
        self.standing, self.change = self.change.after, None

    def plan(self, rows: Many[Row], *, rows_max: int, bytes_max: int) -> None:
        """Number the first of these rows (given in the order they are to be published)."""
        if not rows:
            return
        if rows[0].fault:
            self._reject((rows[0].id,), f"row {rows[0].id}: {rows[0].fault}")
            return
        size = 0
        picked: list[Row] = []
        for row in rows[: 1 if self.singly else rows_max]:
            size += row.size
            if row.fault or (picked and size > bytes_max):
                break
            picked.append(row)
        planned = tuple(row.id for row in picked)
        self.inherited, self.sends, self.singly = False, 0, max(0, self.singly - 1)
        self._set(planned=planned, planned_place=picked[-1].place)

    # What the server said

    def resumed(self, reply: Resumed) -> None:
        """Where the server stands: what fits goes on, what does not stops the topic."""
        self.under_way = False
        self.permit = reply.permit
        standing = self.standing
        if standing.planned and reply.deleted_after == standing.last_sequence:
            # on the topic that was deleted
            self._published(reply.topic_id, reply.last_sequence, reply.moment)
            self.sure = True
        elif reply.lost and standing.has_published:
            self._stop(
                "the server lost the topic, and messages of this outbox that it has acknowledged, "
                f"{standing.acknowledged} in it, or in an earlier one of its name: {AN_OLDER_COPY}"
            )
        elif 0 < reply.deleted_after < standing.acknowledged:
            self._stop(
                f"the topic was deleted, and had numbers up to {reply.deleted_after} of this "
                f"outbox then, but the server has acknowledged {standing.acknowledged}: before "
                f"that, {AN_OLDER_COPY}"
            )
        elif standing.topic_id and reply.topic_id != standing.topic_id:
            self._another_topic(reply)
        elif reply.last_sequence < standing.acknowledged:
            self._stop(
                f"the server knows numbers up to {reply.last_sequence} of this outbox, but it has "
                f"acknowledged {standing.acknowledged}: {AN_OLDER_COPY}"
            )
        elif reply.last_sequence not in (standing.acknowledged, standing.last_sequence):
            self._stop(
                f"the server has numbers up to {reply.last_sequence} of this outbox, but the "
                f"database gave none above {standing.last_sequence}: it is an older copy, or "
                "another copy of it has a relay too. Rows that were published since may be "
                "published again by `once relay retry --anew`"
            )
        elif self._is_elsewhere(reply):
            self._stop(
                f"the server has a number {standing.acknowledged} of this outbox, but stored it at "
                "another time than the row that it has acknowledged under that number: numbers "
                "are of other rows there. Copies of its data, or of this database, are used in "
                "turn. Serve the copy that has the rows of this database; or, if it is accepted "
                "that rows are missing there, go on with `once relay retry --anew`"
            )
        elif self.refusal and reply.last_sequence == standing.acknowledged:
            reason, self.refusal = self.refusal, ""
            self._reject(standing.planned, reason)
        else:
            self._go_on(reply)

    def accepted(self, reply: PutAccepted) -> None:
        """The receipt: the rows are published, and free."""
        self.under_way = False
        if reply.duplicate and reply.stored and reply.first_offset == NO_OFFSET:
            self._stop(
                "the server has used the numbers of these rows long ago: another copy of this "
                "database has a relay too. Give each copy an outbox of its own: "
                "`once relay retry --anew`"
            )
            return
        self.refusal = ""
        if self.required and not reply.stored:  # by a server that does not know what is required
            self._discarded(reply.topic_id, reply.moment)
            return
        self._published(reply.topic_id, self.standing.last_sequence, reply.moment)

    def refused(self, refused: RefusedReply) -> None:
        """The server said no: later, or ask again, or never."""
        self.under_way = False
        if refused.code in SEND_AGAIN:
            self._put_off()
            return
        if refused.code == "unwanted":
            self._put_off()
            if self.sends == 1:
                self.sends = 0  # the one copy was answered: none is unaccounted for
            if not self.standing.waits:
                self._set(stopped=self._why_it_waits())
            return
        if refused.code == "discarded":
            self._discarded(self.standing.topic_id)
            return
        self.sure = False
        if refused.code not in ASK_AGAIN:
            reason = f"{refused.code}: {refused.detail}"
            if self.sets_aside and refused.code != "payload_conflict":
                self.refusal = reason  # another copy may be stored: ask first
            else:
                self._stop(reason)

    def missing(self) -> None:
        """Planned rows are not in the database any more."""
        self._stop(
            "rows that were being published have been removed from oncemq_outbox by another hand; "
            "`once relay retry --anew` goes on with the others"
        )

    # Decisions

    def _is_elsewhere(self, reply: Resumed) -> bool:
        """Whether the last acknowledged number is another row's at the server."""
        is_last = reply.last_sequence == self.standing.acknowledged
        there = reply.moment if is_last else reply.moment_before
        return UNKNOWN not in (there, self.standing.moment) and there != self.standing.moment

    def _published(self, topic_id: TopicId, acknowledged: Sequence, moment: Micros) -> None:
        self.put_offs = 0
        self._set(
            freed=self.standing.planned,
            topic_id=topic_id,
            acknowledged=acknowledged,
            planned=(),
            last_place=self.standing.planned_place,
            stopped="",
            newest=_note(acknowledged, moment),
        )

    def _go_on(self, reply: Resumed) -> None:
        self.sure = True
        if self.standing.topic_id != reply.topic_id:
            self._set(topic_id=reply.topic_id)

    def _another_topic(self, reply: Resumed) -> None:
        nowhere = reply.deleted_after == self.standing.acknowledged > 0
        if self.standing.planned and self.may_be_stored and not nowhere:
            self._stop(
                f"the topic was deleted, or made again, while {len(self.standing.planned)} rows "
                "were under way to it: they may have been in the old one. `once relay retry "
                "--anew` puts them into the topic that has the name now"
            )
            return
        self.sure, self.inherited, self.sends = True, False, 0
        last, published = reply.last_sequence, self.standing.has_published
        newest = _note(last, reply.moment) if published or last else ""
        self._set(topic_id=reply.topic_id, acknowledged=last, newest=newest)

    def _put_off(self) -> None:
        self.put_off = True
        self.put_offs += 1

    def _discarded(self, topic_id: TopicId, moment: Micros = UNKNOWN) -> None:
        """The rows' numbers are used up, and nobody got the messages: they get others, later."""
        self._put_off()
        self._set(
            topic_id=topic_id,
            acknowledged=self.standing.last_sequence,
            planned=(),
            stopped=self._why_it_waits(),
            newest=_note(self.standing.last_sequence, moment),
        )

    def _why_it_waits(self) -> str:
        name = self.standing.topic
        return (
            f"{UNWANTED}nobody would get the messages: {name!r} has no subscription and keeps "
            "nothing. Its rows wait, and go out by themselves once somebody subscribes or the "
            f"topic keeps messages (once topic create {name} --retain 7d). To have the server "
            "discard them, run `once relay --discard-unwanted`"
        )

    def _reject(self, rows: tuple[int, ...], reason: str) -> None:
        if len(rows) > 1:  # which one? They are numbered again, one by one
            self.sure, self.singly = True, len(rows)
            self._set(planned=())
        elif self.sets_aside:
            self._set(set_aside=rows, reason=reason, planned=())
        else:
            self._stop(reason)

    def _stop(self, reason: str) -> None:
        self.sure = False
        self._set(stopped=reason)

    def _set(
        self,
        *,
        freed: tuple[int, ...] = (),
        set_aside: tuple[int, ...] = (),
        reason: str = "",
        **fields: object,
    ) -> None:
        before = self.standing
        if not self.notes:
            fields.pop("newest", None)
        after = msgspec.structs.replace(before, version=before.version + 1, **fields)
        self.change = StandingChange(before, after, freed, set_aside, reason)
