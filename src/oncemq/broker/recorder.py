"""The one hand that writes facts: applies each to the shard and notes it in the step.

Laws: nothing changes the shard but a record that also goes into the log, in the same order. No
record is written that a replica of the shard cannot read: a rule that wants a kind that came later
asks `too_new` first, and does without it, or refuses.
"""

from collections.abc import Container

from oncemq.broker.state.identities import COUNT_MAX
from oncemq.broker.state.shard import Shard
from oncemq.broker.state.topic import Topic
from oncemq.protocol.limits import ServerLimits
from oncemq.protocol.names import Micros, Serial, TopicId, is_system, name_fault
from oncemq.protocol.patterns import wildcard_fault
from oncemq.protocol.records import Record, Retention, TopicAwaited, TopicCreated
from oncemq.protocol.replicas.versions import FIRST, KINDS, NEWEST
from oncemq.protocol.replies import RefusedReply, Reply
from oncemq.protocol.step import Body, Caller, Owed, Step, Write


class Recorder:
    """Writes for every part of the broker."""

    def __init__(self, shard: Shard, rules: ServerLimits) -> None:
        self.shard = shard
        self.rules = rules
        self.version = NEWEST  # of what may be written; less while a replica of a cluster is older

    def write(self, step: Step, record: Record, body: Body | None = None, seed: int = 0) -> Serial:
        """A fact: true from now on in memory, and on disk before anyone is told."""
        kind = type(record)
        assert KINDS.get(kind.kind, FIRST) <= self.version, (
            f"{kind.__name__} may not be written yet"
        )
        serial = Serial(self.shard.serial + 1)
        self.shard.apply(record, serial)
        step.writes.append(Write(record, body, seed))
        return serial

    def too_new(self, kind: type[Record]) -> RefusedReply | None:
        """Why no record of a kind is written yet, or None: every replica has to read it."""
        if KINDS.get(kind.kind, FIRST) <= self.version:
            return None
        return RefusedReply(
            "not_upgraded",
            "some servers of this cluster still run an older OnceMQ, which could not read this: "
            "`once cluster status` names them. Upgrade them, or keep to what the older one can do",
        )

    def answer(self, step: Step, caller: Caller, reply: Reply) -> None:
        """Owe a reply, after everything decided so far is durable.

        Also when this step wrote nothing: "already subscribed", "duplicate", "fenced" rest on
        facts that may still be on their way to the disk.
        """
        step.replies.append(Owed(caller, reply, self.shard.serial))

    @staticmethod
    def refuse(step: Step, caller: Caller, refusal: RefusedReply) -> None:
        """Owe a refusal that rests on no fact: it may leave at once."""
        step.replies.append(Owed(caller, refusal))

    def new_topic_refusal(
        self, name: str, *, more: int = 0, known: Container[str] = ()
    ) -> RefusedReply | None:
        """Why a topic of this name cannot be made (beside so many others), or None.

        `known` are the system's names that may be made here: by a create, which says what is
        kept, and never in passing by a put.
        """
        fault = name_fault(name)
        if fault:
            return RefusedReply("name_invalid", fault)
        fault = wildcard_fault(name)
        if fault:
            return RefusedReply("name_invalid", fault)
        if is_system(name) and name not in known:
            return RefusedReply(
                "name_invalid", f"{name!r}: names with a leading '_' are the system's"
            )
        if len(self.shard.topics) + more >= self.rules.topics_max:
            return RefusedReply("limit", f"this server has its {self.rules.topics_max} topics")
        # Each topic, what patterns want of it, and the subscription that it is made for.
        return self.identity_refusal((more + 1) * (1 + self.shard.patterns.count) + 1)

    def identity_refusal(self, needed: int) -> RefusedReply | None:
        """Why so many topics, subscriptions and stages cannot be given numbers, or None."""
        if self.shard.identities.has(needed):
            return None
        return RefusedReply(
            "limit",
            f"this server's log has numbered {self.shard.identities.given} topics, subscriptions "
            f"and stages of the {COUNT_MAX} that it can tell apart, and uses no number twice. What "
            "is there goes on; to number new ones begin a new data directory, or a new generation "
            "of this log by `once backup` and `once restore`",
        )

    def unwanted(self, name: str) -> RefusedReply | None:
        """Why messages for a topic, there or not, would not be stored: nobody would get them."""
        topic = self.shard.by_name.get(name)
        if topic.wanted if topic else self.shard.patterns.wanting(name):
            return None
        keep = f"once topic {'config' if topic else 'create'} {name} --retain 7d"
        return RefusedReply(
            "unwanted",
            f"nobody would get what is put to {name!r}: it has no subscription and keeps nothing. "
            f"Nothing was stored. Subscribe first, let the topic keep messages ({keep}), or put "
            "with required=False",
        )

    def create(
        self, step: Step, name: str, now: Micros, retention: Retention | None = None
    ) -> Topic:
        """Make a topic, with what patterns want of it; the name was checked."""
        topic_id = TopicId(self.shard.next_identity())
        made = topic_id, name, retention or Retention(), self.shard.next_timestamp(now)
        clients = tuple(self.shard.patterns.wanting(name))
        self.write(step, TopicAwaited(*made, clients) if clients else TopicCreated(*made))
        return self.shard.topics[topic_id]
