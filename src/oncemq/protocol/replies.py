"""What a server may answer. Every request has a reply."""

from typing import get_args

import msgspec

from oncemq.protocol.client_replies import ClientList, Compared
from oncemq.protocol.names import (
    ClientId,
    Epoch,
    Generation,
    Micros,
    Offset,
    Sequence,
    Serial,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import Retention, Run
from oncemq.protocol.structs import ReplyStruct

NO_OFFSET = Offset(-1)


class RefusedReply(ReplyStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """No, and why, and what to do. Nothing was changed by the request.

    `leader`, `leader_epoch`: see `not_leader` and `leader_changed`; with no other code.
    """

    opcode = 64
    code: str
    detail: str
    leader: str = ""
    leader_epoch: int = 0


NOT_LEADER = "not_leader"
LEADER_CHANGED = "leader_changed"


def not_leader(leader: str = "", leader_epoch: int = 0, why: str = "") -> RefusedReply:
    """What a server that does not lead answers to every request but Status, which it answers.

    So does one that leads, and has not enough others to lead with for so long that nobody who waits
    should wait there: `why` says whom it waits for.

    `leader`: the address for clients (`tcp://host:port`) of the server that leads; empty where
    that is not known, for instance during an election. Never the address of whoever refuses.
    `leader_epoch`: the highest leader epoch that whoever refuses has promised to, also where the
    leader of that epoch is not known; 0: it knows of none. A leader is named with its own epoch:
    a client passes over a leader of a lower epoch than it has heard of.

    It says nothing about earlier copies of the request: one that this server took while it led may
    have been stored, or may be yet. So a server that steps down may give it to what is under way,
    and a client must take it for a lost answer, and never for the end of the request.
    """
    follows = f"follows; {leader} leads" if leader else "follows, and knows no leader"
    return RefusedReply(NOT_LEADER, why or follows, leader, leader_epoch)


def leader_changed(leader_epoch: int) -> RefusedReply:
    """What a leader answers to a numbered change that does not name its epoch.

    Which change of a client is the newest, a leader knows only of its own epoch. So one that was
    sent to a leader before it may be a late copy, and is not carried out. To a client it is a lost
    answer: it sends the request again, with this epoch.
    """
    detail = f"epoch {leader_epoch} has begun since this was sent: send it again with that epoch"
    return RefusedReply(LEADER_CHANGED, detail, "", leader_epoch)


class WelcomeLimits(msgspec.Struct, frozen=True, array_like=True):
    """What this server takes at most."""

    message_bytes: int
    batch_bytes: int
    batch_messages: int


class Welcome(ReplyStruct, frozen=True, array_like=True):
    """Let in. `log_id` and `generation` say which log this is, and since when it was not set back.

    A client whose state is of another generation compares before it goes on (Compare). `moment`:
    the newest timestamp in the log.
    """

    opcode = 65
    client_epoch: Epoch
    limits: WelcomeLimits
    log_id: bytes = b""
    generation: Generation = Generation(1)
    moment: Micros = Micros(0)


class Resumed(ReplyStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """`topic_id` 0: there is no such topic yet, and the first put makes it.

    `permit`: to be named by the producer's puts from now on; those under another are void.
    `lost`: the topic that the Resume named was made in a future that this server has lost.
    `deleted_after`: where the topic that it named was deleted, the producer's last number on it:
    what has that or a lower one was stored there, or discarded, and is not to be sent again.
    `above`: where no topic has the name, the producer's last number on any that had it: its
    numbers go on above, so that none is ever taken for one of a deleted topic.
    `moment`, `moment_before`: when the producer's last put on the topic, and the one before it,
    were stored: another branch of the log has other moments for the same numbers. 0: not known.
    """

    opcode = 66
    topic_id: TopicId
    last_sequence: Sequence
    permit: int = 0
    lost: bool = False
    deleted_after: Sequence = Sequence(0)
    above: Sequence = Sequence(0)
    moment: Micros = Micros(0)
    moment_before: Micros = Micros(0)


class PutAccepted(ReplyStruct, frozen=True, array_like=True):
    """The receipt of a batch. `sync_ms` over 0: what a power cut may still take.

    `moment`: when the batch was stored; 0: that was long ago, or under an idempotency key.
    """

    opcode = 67
    topic_id: TopicId
    first_offset: Offset
    count: int
    stored: bool
    duplicate: bool
    sync_ms: int
    moment: Micros = Micros(0)


class BatchHead(msgspec.Struct, frozen=True, array_like=True):
    """What a batch body beside the reply holds."""

    topic: str
    topic_id: TopicId
    subscription_id: SubscriptionId
    first_offset: Offset
    count: int
    columns: int
    checksum: int
    runs: tuple[Run, ...]


class LostMessages(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a topic that are gone for good, which a person agreed to."""

    topic: str
    topic_id: TopicId
    first_offset: Offset
    end_offset: Offset


class Messages(ReplyStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """Batches, a body frame each, in order. None: nothing new. `more`: ask again at once.

    `lost` names the holes right before batches: who stands in one goes on behind it.
    """

    opcode = 68
    batches: tuple[BatchHead, ...]
    more: bool
    lost: tuple[LostMessages, ...] = ()


class Subscribed(ReplyStruct, frozen=True, array_like=True):
    """`made` is False when the subscription was there already (the seeds' NACK)."""

    opcode = 69
    made: bool
    topic_id: TopicId
    subscription_id: SubscriptionId
    cursor: Offset


class Unsubscribed(ReplyStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """`ended` is False when there was no subscription (the seeds' NACK)."""

    opcode = 70
    ended: bool
    topics: tuple[str, ...] = ()  # of a pattern: those whose subscriptions ended with it
    # What ended: the topic's or the pattern's own (0: there was none), then of each of `topics`.
    subscription_ids: tuple[SubscriptionId, ...] = ()


class Done(ReplyStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """Durably so. `changed` is False when it was so before.

    `ended`: of the subscriptions that a Settle named, those that ended here: forget them.
    """

    opcode = 71
    changed: bool
    ended: tuple[SubscriptionId, ...] = ()


class TopicInfo(msgspec.Struct, frozen=True, array_like=True):
    name: str
    topic_id: TopicId
    low: Offset
    end: Offset
    subscriptions: int
    producers: int
    retention: Retention
    created: Micros
    stored_bytes: int = 0
    idempotency_keys: int = 0
    configured: Serial = Serial(0)  # the record that its retention is from
    lost: tuple[tuple[Offset, Offset], ...] = ()  # holes: from, up to; the first HOLES_SHOWN


class TopicList(ReplyStruct, frozen=True, array_like=True):
    """`deleted`: the newest record that deleted a topic, of any name; 0: there was none."""

    opcode = 72
    topics: tuple[TopicInfo, ...]
    more: bool
    deleted: Serial = Serial(0)


class SubscriptionInfo(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    client: ClientId
    subscription_id: SubscriptionId
    cursor: Offset
    end: Offset
    waiting: bool
    pattern: bool = False  # it stands for many topics, which have subscriptions of their own
    ends: Micros = Micros(0)  # when, unless its client is heard of; 0: never
    about: str = ""  # whose it is, as its client says
    began: Offset = NO_OFFSET  # the lowest cursor that is known of it; or an older server is asked


class TopicShown(ReplyStruct, frozen=True, array_like=True):
    """A topic and why each part of it is kept."""

    opcode = 73
    topic: TopicInfo
    kept_because: str
    subscriptions: tuple[SubscriptionInfo, ...]


class SubscriptionList(ReplyStruct, frozen=True, array_like=True):
    opcode = 74
    subscriptions: tuple[SubscriptionInfo, ...]
    more: bool


class StatusReport(ReplyStruct, frozen=True, array_like=True):
    """The server's state in plain numbers, as (name, value) pairs."""

    opcode = 75
    facts: dict[str, str | int | float | bool]


class ListenedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A topic someone listens to: which subscription, and where it and the topic stand."""

    topic: str
    topic_id: TopicId
    subscription_id: SubscriptionId
    cursor: Offset
    end: Offset


class ListeningAnswer(ReplyStruct, frozen=True, array_like=True):
    """What there is to hear, and where: `feed` is the address of the live feed; empty: none.

    `known` stands for this set of subscriptions: a Listen that names it waits.
    """

    opcode = 80
    feed: str
    topics: tuple[ListenedAnswer, ...]
    known: int


class Pushed(ReplyStruct, frozen=True, array_like=True):
    """On the live feed, asked for by nobody: a topic ends at `end` now, and these came last.

    A body frame for each batch. Without batches it is only an announcement: pull what you lack.
    """

    opcode = 81
    topic_id: TopicId
    end: Offset
    batches: tuple[BatchHead, ...] = ()


class TakenReply(ReplyStruct, frozen=True, array_like=True):
    """The id was let in before, under `client_epoch`, and the Hello came with no epoch.

    A state that was never let in takes the id over with another Hello that has it as `last_epoch`.
    So a late copy of a first Hello fences nobody.
    """

    opcode = 84
    client_epoch: Epoch


class TopicEnd(msgspec.Struct, frozen=True, array_like=True):
    """What is held of a topic: offsets from `low` up to, not including, `end`.

    `agreed`: below it, offsets mean what they meant in the generation that was asked about.
    """

    name: str
    topic_id: TopicId
    low: Offset
    end: Offset
    agreed: Offset = NO_OFFSET  # not asked about


class Ends(ReplyStruct, frozen=True, array_like=True):
    """The topics watched that are there."""

    opcode = 88
    topics: tuple[TopicEnd, ...]
    log_id: bytes = b""
    generation: Generation = Generation(1)


class StagedReply(ReplyStruct, frozen=True, array_like=True):
    """A batch is in its stage, which holds `end` messages now.

    `stage_ms`: the stage is given up when nothing is put into it for so long; 0: not said.
    """

    opcode = 76
    end: Offset
    duplicate: bool
    sync_ms: int
    stage_ms: int = 0


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What a topic got by a commit; `first_offset` is -1 when nobody wanted it."""

    topic: str
    topic_id: TopicId
    first_offset: Offset
    count: int


class CommitDone(ReplyStruct, frozen=True, array_like=True):
    """All of it is done. `already`: by an earlier copy (without results, when long ago).

    `before`: the number of the owner's commit before this one; 0: none, or long ago. `last`: the
    last number that the owner has used. `moment`: when this one was recorded; 0: long ago.
    """

    opcode = 77
    already: bool
    results: tuple[Result, ...]
    sync_ms: int
    before: int = 0
    last: int = 0
    moment: Micros = Micros(0)


Reply = (
    RefusedReply
    | Welcome
    | Resumed
    | PutAccepted
    | Messages
    | Subscribed
    | Unsubscribed
    | Done
    | TopicList
    | TopicShown
    | SubscriptionList
    | StatusReport
    | StagedReply
    | CommitDone
    | ListeningAnswer
    | Pushed
    | TakenReply
    | Ends
    | Compared
    | ClientList
)
REPLIES: dict[int, type[Reply]] = {kind.opcode: kind for kind in get_args(Reply)}
