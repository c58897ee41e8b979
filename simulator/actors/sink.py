"""A simulated Spark sink: tasks on several clients stage rows, a driver publishes them by batch.

What outlives drivers is the checkpoint: which rows each batch has, and how far batches are known
to be published; a batch is planned there first, and run again with the same rows until it is. Rows
lie on a tape, so that the same place and count mean the same rows. Laws: every row of a batch that
a driver was told is published is there, once. Who drives with the sink's own checkpoint is never
refused; who drives with another (deleted and made anew, copied elsewhere, a backup, one that lost
its newest files) always is, unless it repeats the last batch with the rows it had.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from oncemq.audit.facts import NEVER
from oncemq.client.engine.stage_puts import StageLine, StageToken
from oncemq.client.values import Commit
from oncemq.client.verbs import staged_commits
from oncemq.errors import OnceMQError
from oncemq.wire import batch
from oncemq.wire.contents import contents_of, contents_of_topics
from simulator.actors.calls import Work, carry_out
from simulator.actors.client import Process
from simulator.actors.server_loop import STAGE_MS
from simulator.actors.transactions import items_of
from simulator.clock import MILLISECOND
from simulator.history.history import History
from simulator.history.stories import PutStory

OWN, BACKUP, ANEW, COPIED = "own", "backup", "anew", "copied"  # which checkpoint is driven with
BEHIND = "behind"  # it lost its last batch, and plans another one of as many rows
ABROAD = "abroad"  # of another server, in the middle of its numbers
MISFITS = ("owner_bound", "number_misfit", "bond_taken", "contents_differ")
TASK_MS = 2_500  # after so long a task is run again: longer than most, shorter than a stage lives
TRIES = 4
NUMBERS = 2_000_000  # of the rows

ELSEWHERE = 50_000  # on the tape: rows that no other batch has


@dataclass(frozen=True, slots=True)
class StagedTask:
    """What a task has staged."""

    tokens: tuple[tuple[str, StageToken], ...]
    sums: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class SinkCheckpoint:
    """What Spark keeps of a query."""

    query: str
    plans: list[range] = field(default_factory=list[range])  # where the rows of each batch lie
    done: int = 0  # so many batches are known to be published

    def plan(self, rows: int) -> int:
        """The number of the next batch: the one that is not known to be published, or a new one."""
        if len(self.plans) == self.done:
            start = self.plans[-1].stop if self.plans else 0
            self.plans.append(range(start, start + rows))
        return self.done + 1


class Sink:
    """One sink over all its drivers."""

    def __init__(self, number: int, topics: list[str], history: History) -> None:
        self.name = f"sink-{number}"
        self.own = SinkCheckpoint(f"query-of-{number}")
        self.backup = SinkCheckpoint(self.own.query)
        self._topics = topics
        self._history = history
        self._first = NUMBERS + number * 100_000
        self._rows: dict[int, PutStory] = {}
        self.published = False  # whether a driver was ever told so

    def checkpoint(self, which: str) -> SinkCheckpoint | None:
        """To drive with; None when there is no such, or nothing to tell it from the sink's own."""
        if which == OWN:
            return self.own
        if which == BACKUP:
            old = self.own.done and self.backup.done < self.own.done
            return deepcopy(self.backup) if old else None
        if not self.published:
            return None  # nobody has the name yet: whoever comes first may take it
        if which == BEHIND:
            return self._behind()
        if which == ABROAD:
            abroad = SinkCheckpoint(f"{self.own.query}-abroad", self.own.plans[:], self.own.done)
            return abroad if self.own.done else None
        return SinkCheckpoint(f"{self.own.query}-anew") if which == ANEW else deepcopy(self.own)

    def _behind(self) -> SinkCheckpoint | None:
        """The newest files are lost; what comes instead are as many rows, from somewhere else."""
        if not self.own.done:
            return None
        found = deepcopy(self.own)
        last = found.plans[found.done - 1]
        found.done -= 1
        found.plans[found.done :] = [range(last.start + ELSEWHERE, last.stop + ELSEWHERE)]
        return found

    def row(self, place: int, process: Process) -> PutStory:
        """What stands on the tape."""
        if place not in self._rows:
            topic, count = self._topics[place % len(self._topics)], 1 + place % 3
            number, moment = self._first + place, self._history.moment()
            story = PutStory(
                number, self.name, process.number, topic, count, 20, moment, False, alone=True
            )
            self._rows[place] = self._history.puts[number] = story
        return self._rows[place]


@dataclass(slots=True, eq=False)
class Batch:
    """One try of a driver to publish a batch."""

    number: int
    parts: list[list[PutStory]]  # of each task
    staged: dict[int, StagedTask] = field(default_factory=dict[int, StagedTask])
    since: int = NEVER  # when the first of its stages began

    @property
    def is_staged(self) -> bool:
        """Whether every task is done."""
        return len(self.staged) == len(self.parts)

    def targets(self) -> list[tuple[str, StageToken]]:
        """What the commit names, in the order of the tasks."""
        return [each for part in sorted(self.staged) for each in self.staged[part].tokens]

    def contents(self) -> int:
        """What the rows are."""
        return contents_of_topics(each for done in self.staged.values() for each in done.sums)

    def counts(self) -> dict[str, int]:
        """How many messages each topic gets."""
        found: dict[str, int] = {}
        for topic, token in self.targets():
            found[topic] = found.get(topic, 0) + token.count
        return found


def drive(
    process: Process,
    sink: Sink,
    executors: Sequence[Process],
    *,
    which: str,
    rows: int,
    tasks: int,
    speculates: bool,
    ends: str,
) -> Work[None]:
    """Run the next batch of a query: as its driver, or as one that should not be."""
    checkpoint = sink.checkpoint(which)
    if checkpoint is None:
        return
    number = checkpoint.plan(rows)
    stories = [sink.row(place, process) for place in checkpoint.plans[number - 1]]
    parts = [stories[n::tasks] for n in range(min(tasks, len(stories)))]
    work = Batch(number, parts)
    yield from _stage(process, work, executors, speculates=speculates)
    if not work.is_staged or ends == "before":
        return
    owner = f"{sink.name}-elsewhere" if which in (COPIED, ABROAD) else sink.name
    commit = staged_commits.commit(
        process.engine,
        owner,
        number,
        work.targets(),
        required=False,
        bond=checkpoint.query,
        follows=True,
        contents=work.contents(),
    )
    passed = sink.own.done > number  # a driver was told of a later one
    try:
        done = yield from carry_out(commit)
    except OnceMQError as error:
        process.world.tell(f"sink {error.code}")
        lives = process.clock.now - work.since < STAGE_MS * MILLISECOND
        if error.code == "stage_unknown" and lives and process.world.is_steady:
            process.history.trouble(f"expired: a live stage of {sink.name} {number}")
        if error.code in MISFITS and which == OWN and sink.own.done < number:
            process.history.trouble(f"refused: {sink.name} {number}: {error.detail}")
        raise
    sink.published = True
    known = checkpoint.plans[number - 1 :] == sink.own.plans[number - 1 : number]
    if which in (ANEW, COPIED, ABROAD) or (
        which != OWN and (passed or not done.already or not known)
    ):
        what = f"batch {number} of {sink.name}, from a checkpoint that is {which}"
        process.history.trouble(f"accepted: {what}, already={done.already}")
    _told(process, sink, work, done, which)
    if which == OWN and ends != "after":
        sink.own.done = max(sink.own.done, number)


def _stage(
    process: Process, work: Batch, executors: Sequence[Process], *, speculates: bool
) -> Work[None]:
    """Run the tasks, those that do not end once more, on other executors."""
    for attempt in range(TRIES):
        for part in range(len(work.parts)):
            if part not in work.staged:
                for twin in range(2 if speculates else 1):
                    executor = executors[(part + attempt + twin) % len(executors)]
                    if not executor.dead:
                        executor.begin("task", _task(executor, process, work, part))
        until = process.clock.now + TASK_MS * MILLISECOND
        process.clock.at(until, process.wake)
        yield lambda until=until: work.is_staged or process.clock.now >= until
        if work.is_staged:
            return


def _task(executor: Process, driver: Process, work: Batch, part: int) -> Work[None]:
    """Stage the rows of one task; of several attempts the first to end counts."""
    engine, begun = executor.engine, executor.clock.now
    lines: dict[str, StageLine] = {}
    sums: list[tuple[str, int]] = []
    try:
        for story in work.parts[part]:
            line = lines.setdefault(story.topic, staged_commits.new_line(engine, None))
            columns, body = batch.encode(items_of(story))
            put = staged_commits.stage_put(
                engine, line, count=story.count, columns=columns, body=body
            )
            yield from carry_out(put)
            sums.append((story.topic, contents_of(body, story.count, columns)))
        tokens: list[tuple[str, StageToken]] = []
        for topic, line in lines.items():
            token = yield from carry_out(staged_commits.stage_close(line))
            tokens.append((topic, token))
    except OnceMQError:
        for line in lines.values():
            line.drop()
        raise
    if part in work.staged:
        executor.world.tell("sink attempt too many")
        for line in lines.values():
            line.drop()
        return
    work.staged[part] = StagedTask(tuple(tokens), tuple(sums))
    work.since = min(work.since, begun)
    driver.wake()


def _told(process: Process, sink: Sink, work: Batch, done: Commit, which: str) -> None:
    """The commit was answered: what a driver concludes, as `spark.publishing` does."""
    process.world.tell("sink repeated" if done.already else "sink published")
    before = {topic: len(receipts) for topic, receipts in done.receipts.items()}
    misfit = done.already and before and before != work.counts()
    if misfit:
        process.world.tell("sink rows differ")
    if which != OWN:
        return
    if misfit:
        detail = f"had {before} rows, has {work.counts()}"
        process.history.trouble(f"refused: {sink.name} {work.number} {detail}")
        return
    _note_places(process, work, done)


def _note_places(process: Process, work: Batch, done: Commit) -> None:
    """Every row is there. Where, is known of this try only: another may cut its tasks elsewhere."""
    ends = {topic: receipts[0].offset for topic, receipts in done.receipts.items()}
    for story in (story for part in work.parts for story in part):
        if story.answered is None:
            story.answered = process.moment()
        place = ends.get(story.topic)
        if story.stored is None and story.topic in ends:
            story.stored = place is not None
        if not done.already and place is not None:
            story.first_offset = place
            ends[story.topic] = place + story.count
