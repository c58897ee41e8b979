"""Copies of a server and of a client's state, in any order: nobody is let in by mistake."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.client.admin.accepting import loss_of, questions
from oncemq.protocol.client_requests import Compare
from oncemq.protocol.generations import continued
from oncemq.protocol.names import ClientId, Epoch
from oncemq.protocol.replies import Compared, RefusedReply, TakenReply, Welcome
from oncemq.session.handshake import Handshake, LogSeen
from simulator.machines.memory_journal import SimulatedJournal
from tests.harness.broker import Desk
from tests.unit.broker.test_comparison import gone_back

ME = ClientId("me")

# A copy of the data is visited: it is served, and the client is started, and moved when it is told.
# Or each of that happens alone: starts are answered so many times before they crash, with the last
# hello arriving or not. The data that is served is copied, to be restored or to go on by hand; the
# state is copied, and a copy of it put back.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("visit"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("start"), st.sampled_from((9, 0, 1, 2)), st.booleans()),
        st.tuples(st.just("fork"), st.booleans(), st.just(0)),
        st.tuples(st.just("serve"), st.integers(0, 4), st.just(0)),
        st.tuples(st.sampled_from(("copy", "accept")), st.just(0), st.just(0)),
        st.tuples(st.just("use"), st.integers(0, 3), st.just(0)),
    ),
    max_size=25,
)


class State:
    """What a client keeps on its disk, and which starts were truly those of this state."""

    def __init__(
        self, journal: SimulatedJournal | None = None, own: set[int] | None = None
    ) -> None:
        self.journal = journal or SimulatedJournal()
        self.own = own or set()

    def copy(self) -> "State":
        return State(self.journal.copy(), set(self.own))


class Site:
    """One client, one server, and the copies that people made of both."""

    def __init__(self) -> None:
        self.branches = [Desk()]
        self.served = 0
        self.state = State()
        self.copies: list[State] = []
        self.nonces, self.names = count(100), count(1)

    @property
    def desk(self) -> Desk:
        return self.branches[self.served]

    @property
    def newest(self) -> int | None:
        """The start that the server let in last."""
        entry = self.desk.shard.clients.entries.get(ME)
        return entry.nonce if entry else None

    def fork(self, raised: bool) -> None:
        generation = self.desk.shard.generation
        if raised:
            generation = continued(generation, next(self.names))
        self.branches.append(
            gone_back(self.desk, len(self.desk.records), generation=generation, tag=8)
        )

    def start(self, answered: int = 9, *, arrives: bool = True) -> str:
        """A start of the client as `client.arrival` makes it; what becomes of it."""
        before, last_epoch = self.newest, self.state.journal.last_epoch()
        could = before is None or not last_epoch or self._is_current(before)
        greeting = self._claim()
        for _ in range(answered):
            answer = self.desk.ask(greeting.hello())
            if isinstance(answer, Welcome):
                if greeting.welcomed(answer):
                    grant = answer.client_epoch, greeting.claim, answer.moment
                    self.state.journal.granted(*grant)
                    self.state.journal.know(LogSeen(answer.log_id, answer.generation))
                    assert could, "let in, and another branch or another state was let in before"
                    return "in"
            elif isinstance(answer, TakenReply):
                greeting = self._claim(answer.client_epoch)
            elif not greeting.refused(answer):
                assert isinstance(answer, RefusedReply)
                return self._refused(answer, before)
        if arrives:
            self.desk.ask(greeting.hello())
        return "crashed"

    def _claim(self, over: int = 0) -> Handshake:
        claim = next(self.nonces)
        self.state.own.add(claim)
        last_epoch, earlier, log, last_nonce = self.state.journal.claim(claim)
        return Handshake(
            ME, last_epoch=last_epoch, earlier=earlier, claim=claim, last_nonce=last_nonce,
            over=Epoch(over), log=log,
        )  # fmt: skip

    def _is_current(self, nonce: int) -> bool:
        """Whether the state was let in here last, and nowhere else since."""
        journal = self.state.journal
        return nonce in journal.claims() or nonce == journal.copy().claim(0).last_nonce

    def _refused(self, answer: RefusedReply, before: int | None) -> str:
        if answer.code == "history_lost":
            return "lost"
        assert answer.code == "stale_state"
        journal = self.state.journal
        asked = Compare(ME, journal.log().generation, journal.last_epoch(), grants=journal.grants())
        compared = self.desk.ask(asked)
        assert isinstance(compared, Compared)
        if compared.parted:
            assert before in self.state.own, "an old copy of a state is taken for one that returns"
            return "lost"
        assert before not in self.state.own, "locked out, though the server let this very state in"
        return "stale"

    def settle(self) -> str:
        """Started, and moved if it is told: then it is let in."""
        end = self.start()
        if end == "lost":
            assert self.accept(), "told that history was lost, and nothing to accept"
            end = self.start()
            assert end == "in", "accepted, and not let in"
        assert end in ("in", "stale")
        return end

    def accept(self) -> bool:
        """What `once client accept` does; whether it does."""
        journal = self.state.journal
        loss = loss_of(journal, [self.desk.ask(each) for each in questions(ME, journal, [])])
        if loss.stale or loss.is_nothing:
            return False
        journal.accept(loss.here, [])
        return True


def live(site: Site, steps: list[tuple[str, int, int]]) -> None:
    told = False
    for what, number, more in steps:
        match what:
            case "visit":
                site.served, told = number % len(site.branches), False
                site.settle()
            case "start":
                told = site.start(number, arrives=bool(more)) == "lost"
            case "fork":
                site.fork(bool(number))
            case "serve":
                site.served, told = number % len(site.branches), False
            case "copy":
                site.copies.append(site.state.copy())
            case "use" if site.copies:
                site.state, told = site.copies[number % len(site.copies)].copy(), False
            case "accept" if told:
                assert site.accept(), "told that history was lost, and nothing to accept"
                told = False
            case _:
                pass


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_who_is_told_of_another_branch_gets_in_and_who_is_an_old_copy_does_not(steps) -> None:
    site = Site()
    live(site, steps)
    if site.settle() == "in":
        assert site.start() == "in", "let in, and then not any more"
