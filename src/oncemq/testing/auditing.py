"""The checker on hand: every message of a topic was stored once, and took effect once.

    audit(address, "orders", effects={"billing": ["orders@0", "orders@1"]}, receipts=receipts)

Law: what was put in this test counts, also when it was settled and let go since: an effect that
is missing is missing.
"""

from collections.abc import Iterable, Mapping

from oncemq.audit.checker import Audit
from oncemq.audit.facts import DISCARDED, STORED, GivenFact, Held, PutFact, Skipped
from oncemq.audit.findings import KINDS, Finding
from oncemq.client.admin.topic_facts import walk
from oncemq.client.blocking.client import Client
from oncemq.client.values import Message, Receipt
from oncemq.protocol.names import Offset

Effect = Message | str | int  # the message, its id (`orders@42`), or its offset


def audit(
    server: str,
    topic: str,
    *,
    effects: Mapping[str, Iterable[Effect]] | None = None,
    receipts: Iterable[Receipt] = (),
    start: int = 0,
) -> None:
    """AssertionError that names each broken promise, or nothing.

    Looks at what is stored in the topic. `effects`: for each subscriber the messages that took
    effect there, in the order they did; from `start` on, each must be there once. `receipts`: what
    publishers were told; it must be there.
    """
    run = Audit()
    with Client(server) as client:
        info = client.topic(topic).topic
        low = max(int(info.low), start)
        run.see(Held(topic, Offset(start), info.end))
        for put in map(_put, receipts):
            run.see(put)
        if low > start:
            run.see(Skipped(topic, Offset(low)))
        for fact in walk(client, info):
            if not isinstance(fact, Held) and _is_from(fact, start):
                run.see(fact)
    for subscriber, given in (effects or {}).items():
        run.expect(subscriber, topic, start=start)
        for effect in given:
            run.see(GivenFact(subscriber, topic, _offset(topic, effect)))
    findings = run.finish()
    if findings.counts:
        raise AssertionError("\n".join(_told(each) for each in findings.kept))


def _put(receipt: Receipt) -> PutFact:
    offset = None if receipt.offset is None else Offset(receipt.offset)
    return PutFact(topic=receipt.topic, told=STORED if receipt.stored else DISCARDED, offset=offset)


def _is_from(fact: object, start: int) -> bool:
    return getattr(fact, "offset", start) >= start


def _offset(topic: str, effect: Effect) -> Offset:
    if isinstance(effect, int):
        return Offset(effect)
    name = effect if isinstance(effect, str) else effect.id
    of, _, offset = name.rpartition("@")
    if of != topic or not offset.isdecimal():
        raise ValueError(f"{name!r} is no message of '{topic}', as {topic}@42 would be")
    return Offset(int(offset))


def _told(finding: Finding) -> str:
    promise, meaning = KINDS[finding.kind]
    return f"{promise} {finding} ({meaning})"
