"""The requests of a client.

Any request may be repeated: put is idempotent by sequence, get by cursor, the others by their
effect.
"""

from typing import Annotated, get_args

import msgspec

from oncemq.protocol.client_requests import Compare, ForgetClient, ListClients
from oncemq.protocol.names import (
    Epoch,
    Generation,
    Micros,
    Offset,
    Sequence,
    Serial,
    SubscriptionId,
    TopicId,
)
from oncemq.protocol.records import Retention
from oncemq.protocol.structs import (
    FEW,
    RequestStruct,
    Settled,
    ShortBytes,
    ShortClientId,
    ShortProducerId,
    Text,
)

START_NEW = "new"
START_EARLIEST = "earliest"
START_OFFSET = "offset"
START_TIME = "time"


class Hello(RequestStruct, frozen=True, array_like=True):
    """A client with state starts; `nonce` makes a repeated Hello the same start.

    `log_id` and `generation`: of the log that its state is about; empty: it knows of none.
    `compares`: it will look whether the server has what it knows, when it went back in time.
    `last_nonce`: that `last_epoch` was granted to; 0: it does not know.
    """

    opcode = 1
    client: ShortClientId
    last_epoch: Epoch
    nonce: int
    log_id: ShortBytes = b""
    generation: Generation = Generation(1)
    compares: bool = False  # as clients did not, once
    last_nonce: int = 0


class Resume(RequestStruct, frozen=True, array_like=True):
    """Where did this producer stop on this topic? Copies of its puts from before are void then.

    `number` grows with each Resume of a client's start; a repeated one keeps it. 0: not numbered.
    `topic_id`: the topic that the producer's numbers are of, as far as it knows.
    """

    opcode = 2
    client: ShortClientId
    client_epoch: Epoch
    topic: Text
    producer: ShortProducerId
    number: int = 0
    topic_id: TopicId = TopicId(0)


class Put(RequestStruct, frozen=True, array_like=True):
    """Store a batch (the body beside it). `topic_id` 0: whichever topic has the name.

    `lasting`: the producer's numbers are on the client's disk; else they end with its process.
    `permit`: the one that its producer's last Resumed on the topic gave; 0: it never resumed.
    `idempotency_key`: the key decides whether the put is new, and its producer is the key's.
    `required`: refused (`unwanted`) where it would not be stored because nobody would get it.
    `after`: when the producer's put before this one was stored, as its receipt said; refused
    (`outdated`) where the server has another moment for that put. 0: not said.
    """

    opcode = 3
    client: ShortClientId
    client_epoch: Epoch
    topic: Text
    topic_id: TopicId
    producer: ShortProducerId
    lasting: bool
    first_sequence: Sequence
    count: int
    columns: int
    checksum: int
    permit: int = 0
    idempotency_key: Text = ""
    required: bool = False
    after: Micros = Micros(0)


class Get(RequestStruct, frozen=True, array_like=True):
    """The next messages of one topic, or (topic empty) of any subscribed one, oldest first.

    `start` lets a client read ahead of its cursor on one topic; -1 means from the cursor, and so
    does any when the subscription is not the one named (0: whichever it is).
    `only` narrows "any" down to these topics.
    """

    opcode = 4
    client: ShortClientId
    client_epoch: Epoch
    topic: Text
    settled: Annotated[tuple[Settled, ...], FEW] = ()
    start: int = -1
    limit: int = 1
    bytes_max: int = 1 << 20
    wait_ms: int = 0
    only: Annotated[tuple[Text, ...], FEW] = ()
    subscription_id: SubscriptionId = SubscriptionId(0)


class Settle(RequestStruct, frozen=True, array_like=True):
    """Move cursors without asking for messages; answered once that is durable."""

    opcode = 5
    client: ShortClientId
    client_epoch: Epoch
    settled: Annotated[tuple[Settled, ...], FEW]


class Start(msgspec.Struct, frozen=True, array_like=True):
    """Where a new subscription begins."""

    mode: Text = START_NEW
    value: int = 0  # an offset, or a time in microseconds


class Subscribe(RequestStruct, frozen=True, array_like=True):
    """`number` grows with each change a client makes to its subscriptions; 0: not numbered.

    A copy that comes late, after a newer change, is then known as such. `leader_epoch`: of the
    leader that is asked, as it said; a copy that went to an earlier leader is known by it.
    """

    opcode = 6
    client: ShortClientId
    client_epoch: Epoch
    topic: Text
    start: Start = Start()
    number: int = 0
    leader_epoch: int = 0


class Unsubscribe(RequestStruct, frozen=True, array_like=True):
    """`number` and `leader_epoch` as in Subscribe."""

    opcode = 7
    client: ShortClientId
    client_epoch: Epoch
    topic: Text
    number: int = 0
    leader_epoch: int = 0


class Lease(RequestStruct, frozen=True, array_like=True):
    """End this client's subscriptions when it does not ask so again for `lease_ms`; 0: keep them.

    `about` says whose they are, for who looks at the list of subscriptions. `number` and
    `leader_epoch` as in Subscribe: a late copy neither renews a lease nor undoes its end.
    """

    opcode = 31
    client: ShortClientId
    client_epoch: Epoch
    lease_ms: int
    about: Text = ""
    number: int = 0
    leader_epoch: int = 0


class CreateTopic(RequestStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """`deleted`: the newest deletion that was seen; -1: none was looked for.

    A copy that comes late must not make a topic again that was deleted since.
    """

    opcode = 8
    topic: Text
    retention: Retention = Retention()
    deleted: Serial = Serial(-1)


class ConfigureTopic(RequestStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """`topic_id` and `configured`: which topic, and which configuration, is replaced; 0: any.

    A copy that comes late must not undo what was configured since.
    """

    opcode = 9
    topic: Text
    retention: Retention
    topic_id: TopicId = TopicId(0)
    configured: Serial = Serial(0)


class DeleteTopic(RequestStruct, frozen=True, array_like=True, repr_omit_defaults=True):
    """`topic_id`: which of the topics that had the name; 0: whichever has it now.

    A copy that comes late must not delete a topic that was made since.
    """

    opcode = 10
    topic: Text
    topic_id: TopicId = TopicId(0)


class ListTopics(RequestStruct, frozen=True, array_like=True):
    """Topics by name, a page at a time, from the first name after `after`."""

    opcode = 11
    after: Text = ""
    limit: int = 100


class ShowTopic(RequestStruct, frozen=True, array_like=True):
    opcode = 12
    topic: Text


class ListSubscriptions(RequestStruct, frozen=True, array_like=True):
    """Subscriptions of one topic, of one client, or all; a page after (topic, client)."""

    opcode = 13
    topic: Text = ""
    client: Text = ""
    after: tuple[Text, Text] = ("", "")
    limit: int = 100


class StatusRequest(RequestStruct, frozen=True, array_like=True):
    opcode = 14


class Read(RequestStruct, frozen=True, array_like=True):
    """Stored messages from an offset, without a subscription and settling nothing.

    `whole`: a batch larger than `bytes_max` comes uncut, alone.
    """

    opcode = 15
    topic: Text
    offset: Offset
    limit: int = 100
    bytes_max: int = 1 << 20
    whole: bool = False


class WatchEnds(RequestStruct, frozen=True, array_like=True):
    """Where do these topics end? Answered once one of them does not end where it is said to.

    For readers that keep their own cursor. A connection waits for one such answer at a time.
    """

    opcode = 24
    topics: Annotated[tuple[tuple[Text, Offset], ...], FEW]
    wait_ms: int = 0
    generation: Generation = Generation(0)  # that the reader's cursors are of; 0: the server's own


class Listen(RequestStruct, frozen=True, array_like=True):
    """Where do the topics this client listens to end? (The seeds' hello.)

    Answered at once when `wait_ms` is 0 or `known` is not how its subscriptions stand; else when
    they change, when it does not settle what it should have (a nudge), or when the wait is over.
    `topics`: which; none: any. `number` grows with each; a Leave ends those up to its own.
    """

    opcode = 20
    client: ShortClientId
    client_epoch: Epoch
    topics: Annotated[tuple[Text, ...], FEW] = ()
    settled: Annotated[tuple[Settled, ...], FEW] = ()
    known: int = 0
    wait_ms: int = 0
    number: int = 0


class Leave(RequestStruct, frozen=True, array_like=True):
    """This client listens no longer (the seeds' goodbye); its subscriptions stay."""

    opcode = 21
    client: ShortClientId
    client_epoch: Epoch
    number: int = 0


class StagePut(RequestStruct, frozen=True, array_like=True):
    """Put a batch (the body beside it) into a stage; the first one, with sequence 1, makes it.

    The stage's name is its producer: sequences count its messages, 1, 2, 3 …
    """

    opcode = 16
    client: ShortClientId
    client_epoch: Epoch
    stage: ShortProducerId
    first_sequence: Sequence
    count: int
    columns: int
    checksum: int


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a topic is to get: `count` messages of a stage, from its offset `start` on."""

    topic: Text
    stage: ShortProducerId
    start: Offset
    count: int


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a commit settles: a subscription's messages from `first` up to, not with, `cursor`."""

    topic: Text
    subscription_id: SubscriptionId
    first: Offset
    cursor: Offset


class CommitRequest(RequestStruct, frozen=True, array_like=True):
    """Publish pieces in order and settle inputs, all or nothing, once for an owner and a number.

    `lasting`: the owner is remembered for good; else it ends with its process (a leading `_`).
    `closing`: nothing more of the stages named will be published.
    `bond`: what the owner's numbers belong to, such as a checkpoint; the first one binds the
    owner, another is refused, and so is a number below the last. `follows`: so is one that is
    not the next, and the bond is this owner's alone.
    `contents`: a sum over the messages (see `wire.contents`); a number that was committed with
    another is refused. 0: not said.
    `required`: refused (`unwanted`) where a topic would not store its pieces because nobody would
    get them.
    `after`: a number that the owner has committed, as the committer knows, and `after_moment` when
    (0: it does not know); refused (`history_lost`) where the server does not have that commit.
    """

    opcode = 17
    client: ShortClientId
    client_epoch: Epoch
    owner: Text
    number: int
    lasting: bool
    pieces: Annotated[tuple[Piece, ...], FEW] = ()
    inputs: Annotated[tuple[Input, ...], FEW] = ()
    closing: bool = True
    bond: Text = ""
    follows: bool = False
    required: bool = False
    contents: int = 0
    after: int = 0
    after_moment: Micros = Micros(0)


class DropStage(RequestStruct, frozen=True, array_like=True):
    """Give up what of a stage is not published."""

    opcode = 18
    client: ShortClientId
    client_epoch: Epoch
    stage: ShortProducerId


Request = (
    Hello
    | Resume
    | Put
    | Get
    | Settle
    | Subscribe
    | Unsubscribe
    | CreateTopic
    | ConfigureTopic
    | DeleteTopic
    | ListTopics
    | ShowTopic
    | ListSubscriptions
    | StatusRequest
    | Read
    | StagePut
    | CommitRequest
    | DropStage
    | Listen
    | Leave
    | WatchEnds
    | Compare
    | ForgetClient
    | ListClients
    | Lease
)
REQUESTS: dict[int, type[Request]] = {kind.opcode: kind for kind in get_args(Request)}
