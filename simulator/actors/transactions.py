"""What simulated applications make many things one with: transactions, staged commits, keyed puts.

Each is work of a process, carried out by the shipped verbs (see `calls`).
"""

from oncemq.client.values import Message
from oncemq.client.verbs import staged_commits
from oncemq.client.verbs.keyed_puts import put_keyed
from oncemq.client.verbs.transaction_work import TransactionWork
from oncemq.errors import HistoryLost, OnceMQError, Unreachable
from oncemq.wire import batch
from simulator.actors.calls import Work, carry_out
from simulator.actors.client import Process, generation_of, subscription_of
from simulator.clock import MILLISECOND
from simulator.history import stories
from simulator.history.stories import HandedOut, PutStory
from simulator.history.transaction_outcomes import CommitAttempt, Deal, Dealings, offsets_of


def transact(
    process: Process,
    dealings: Dealings,
    number: int,
    *,
    source: str,
    targets: list[str],
    limit: int,
    size: int,
    hold_ms: int,
    fails: bool,
) -> Work[None]:
    """Get, transform, put to one or two topics; commit, or give up."""
    history, engine = process.history, process.engine
    work = TransactionWork(engine)
    stories: list[PutStory] = []
    deal: Deal | None = None
    try:
        asked = history.moment()
        messages: list[Message] = []
        if source:
            messages = yield from carry_out(work.take(source, limit, 0))
        for place, topic in enumerate(targets):
            story = _story(process, number + place, topic, max(1, len(messages)), size)
            stories.append(story)
            yield from carry_out(work.put([topic], items_of(story)))
        if hold_ms:
            until = process.clock.now + hold_ms * MILLISECOND
            process.clock.at(until, process.wake)
            yield lambda: process.clock.now >= until
        if fails:
            process.world.tell("transaction given up")
            return
        deal = Deal(work, [_given(process, each, asked) for each in messages], stories)
        dealings.deals.append(deal)
        history.seen.append(deal)
        commit = yield from carry_out(work.commit())
        process.world.tell("transaction committed")
        deal.told(offsets_of(commit), history.moment())
    except OnceMQError as error:
        process.world.tell(f"transaction {error.code}")
        if isinstance(error, HistoryLost) and work.result is not None:
            history.trouble(f"denied: {number} was committed, and told as lost: {error.detail}")
        raise
    finally:
        if deal is None:
            for story in stories:
                story.refused = "given up"
        work.abort()


def stage_and_commit(
    process: Process, dealings: Dealings, number: int, *, topic: str, count: int, size: int,
    owner: str, commit: int, required: bool,
) -> Work[None]:  # fmt: skip
    """Put into a stage, then commit it under an owner's number, as an attempt of several may."""
    engine = process.engine
    story = _story(process, number, topic, count, size)
    story.required = required
    dealings.attempts.append(CommitAttempt(owner, commit, story))
    asked = False
    try:
        line = staged_commits.new_line(engine, None)
        columns, body = batch.encode(items_of(story))
        put = staged_commits.stage_put(engine, line, count=count, columns=columns, body=body)
        yield from carry_out(put)
        token = yield from carry_out(staged_commits.stage_close(line))
        asked = True
        targets = [(topic, token)]
        verb = staged_commits.commit(engine, owner, commit, targets, required=required)
        done = yield from carry_out(verb)
    except OnceMQError as error:
        process.world.tell(f"staged {error.code}")
        if not asked:
            story.refused = error.code
        raise
    process.world.tell("staged already" if done.already else "staged and committed")
    if done.already:
        return  # by a lost answer's copy of this, or by another attempt: either is right
    story.answered = process.history.moment()
    story.first_offset = done.receipts[topic][0].offset
    story.stored = story.first_offset is not None


def put_under_key(
    process: Process, number: int, *, topic: str, count: int, size: int
) -> Work[None]:
    """Put under an idempotency key that is the put's number; others may have done it before."""
    history = process.history
    story = history.puts.get(number)
    if story is None:
        story = _story(process, number, topic, count, size)
    columns, body = batch.encode(items_of(story))
    key = f"key {number}"
    verb = put_keyed(process.engine, topic, key, count=count, columns=columns, body=body)
    try:
        receipts = yield from carry_out(verb)
    except Unreachable:
        raise
    except OnceMQError as error:
        process.world.tell(f"keyed {error.code}")
        raise
    receipt = receipts[0]
    process.world.tell("keyed duplicate" if receipt.duplicate else "keyed new")
    known = (story.first_offset, story.stored)
    if story.answered is None or history.back.has_lost(story):
        # Whoever began it may have been fenced, and this one went on under the same key.
        story.answered = history.moment()
        story.client, story.process = process.client.name, process.number  # whoever came first
        story.first_offset, story.stored = receipt.offset, receipt.stored
    elif known != (receipt.offset, receipt.stored):
        history.trouble(f"changed: key {number} was {known}, and is {receipt}")


def _story(process: Process, number: int, topic: str, count: int, size: int) -> PutStory:
    history = process.history
    story = PutStory(
        number, process.client.name, process.number, topic, count, size, history.moment(),
        lasting=False, alone=True,
    )  # fmt: skip
    history.puts[number] = story
    return story


def items_of(story: PutStory) -> list[batch.Item]:
    """Its payloads, with their keys."""
    payloads = stories.payloads(story.number, story.count, story.size)
    keys = [stories.key(story.number, place) for place in range(story.count)]
    return list(map(batch.Item, payloads, keys))


def _given(process: Process, message: Message, asked: int) -> HandedOut:
    return HandedOut(
        process.client.name, process.number, message.topic, subscription_of(message),
        message.offset, message.payload, message.key, asked, process.history.moment(),
        generation_of(message),
    )  # fmt: skip
