"""How a start gets its epoch: claims that were never answered are asked about first."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from oncemq.broker.state.clients import Clients
from oncemq.protocol.names import ClientId, Epoch
from oncemq.protocol.records import ClientOpened
from oncemq.protocol.replies import RefusedReply, TakenReply, Welcome, WelcomeLimits
from oncemq.protocol.requests import Hello
from oncemq.session.handshake import Handshake

ME = ClientId("me")
LIMITS = WelcomeLimits(1, 1, 1)
STALE = RefusedReply("stale_state", "")


def greeting(
    last: int = 0, earlier: tuple[int, ...] = (), claim: int = 100, over: int = 0
) -> Handshake:
    return Handshake(ME, last_epoch=Epoch(last), earlier=earlier, claim=claim, over=Epoch(over))


def said(last: int, nonce: int, last_nonce: int = 0) -> Hello:
    return Hello(ME, Epoch(last), nonce, compares=True, last_nonce=last_nonce)


class Server:
    """The server's side of a hello."""

    def __init__(self) -> None:
        self.clients = Clients()

    def hear(self, hello: Hello) -> Welcome | TakenReply | RefusedReply:
        verdict = self.clients.judge(hello)
        if isinstance(verdict, ClientOpened):
            self.clients.apply(verdict)
            return Welcome(verdict.client_epoch, LIMITS)
        return verdict

    def greet(self, start: Handshake) -> Epoch | None:
        """The whole conversation; None when the start is refused."""
        while True:
            answer = self.hear(start.hello())
            if isinstance(answer, Welcome):
                if start.welcomed(answer):
                    return start.granted
            elif not start.refused(answer):
                return None


def test_a_first_start_says_its_claim_and_takes_what_is_granted() -> None:
    start = greeting(claim=7)
    assert start.hello() == said(0, 7)
    assert start.welcomed(Welcome(Epoch(1), LIMITS)) is True
    assert start.granted == 1


def test_the_hello_repeated_is_the_same() -> None:
    start = greeting(last=3, claim=7)
    assert start.hello() == start.hello() == said(3, 7)


def test_earlier_claims_are_asked_about_newest_first_then_the_own_one() -> None:
    start = greeting(last=3, earlier=(5, 6), claim=7)
    assert start.hello() == said(3, 6)
    assert start.refused(STALE) is True
    assert start.hello() == said(3, 5)
    assert start.welcomed(Welcome(Epoch(4), LIMITS)) is False
    assert start.hello() == said(4, 7, last_nonce=5)
    assert start.welcomed(Welcome(Epoch(5), LIMITS)) is True


def test_the_epoch_of_an_earlier_claim_is_never_held() -> None:
    start = greeting(last=3, earlier=(6,), claim=7)
    start.welcomed(Welcome(Epoch(4), LIMITS))
    assert start.granted is None


def test_an_old_copy_of_the_state_is_refused_for_good() -> None:
    assert greeting(last=3).refused(STALE) is False
    start = greeting(last=3, earlier=(5,), claim=7)
    assert start.refused(STALE) is True
    assert start.hello() == said(3, 7)  # a twin may have been granted it
    assert start.refused(STALE) is False


def test_any_other_refusal_is_final() -> None:
    assert greeting(earlier=(5,)).refused(RefusedReply("name_invalid", "")) is False


def test_a_grant_whose_answer_was_lost_is_found_again() -> None:
    server = Server()
    server.hear(greeting(claim=1).hello())  # the answer never came
    assert server.greet(greeting(earlier=(1,), claim=2)) == 2


def test_a_claim_that_never_arrived_is_no_obstacle() -> None:
    server = Server()
    assert server.greet(greeting(claim=1)) == 1
    # claim 2 was granted and lost, claim 3 was never sent
    server.hear(Hello(ME, Epoch(1), 2))
    assert server.greet(greeting(last=1, earlier=(2, 3), claim=4)) == 3


def test_a_copy_restored_from_a_backup_is_refused() -> None:
    server = Server()
    for last, claim in ((0, 1), (1, 2), (2, 3)):
        assert server.greet(greeting(last=last, claim=claim)) == last + 1
    assert server.greet(greeting(last=1, claim=4)) is None
    assert server.greet(greeting(last=2, earlier=(9,), claim=4)) is None


def test_two_starts_at_once_end_with_epochs_of_their_own() -> None:
    server = Server()
    one, two = greeting(claim=1), greeting(earlier=(1,), claim=2)
    welcome = server.hear(two.hello())  # the other one's claim, asked about first
    assert isinstance(welcome, Welcome)
    assert two.welcomed(welcome) is False
    assert server.greet(two) == 2
    assert server.greet(one) is None


def test_a_late_copy_of_a_first_hello_fences_nobody_and_locks_nobody_out() -> None:
    server = Server()
    first = greeting(claim=1).hello()
    server.hear(first)
    assert server.greet(greeting(last=1, claim=2)) == 2
    assert server.hear(first) == TakenReply(Epoch(2))
    assert server.greet(greeting(last=2, claim=3)) == 3


def test_a_start_asks_about_its_own_claim_last_because_a_twin_may_have_had_it_granted() -> None:
    server = Server()
    assert server.greet(greeting(claim=1)) == 1
    server.hear(Hello(ME, Epoch(1), 3))  # a twin, which found our claim beside an older one
    assert server.greet(greeting(last=1, earlier=(2,), claim=3)) == 2


def test_a_late_hello_that_is_granted_while_claims_are_asked_about_locks_nobody_out() -> None:
    server = Server()
    assert server.greet(greeting(claim=1)) == 1
    server.hear(said(1, 2))  # heard by the start of claim 3, which said its own, late
    start = greeting(last=1, earlier=(2, 3), claim=4)
    assert start.refused(server.hear(start.hello())) is True
    server.hear(said(2, 3, last_nonce=2))
    assert server.greet(start) == 4


def test_a_state_that_was_never_let_in_takes_over_from_the_epoch_it_is_told() -> None:
    server = Server()
    for last in (0, 1):
        server.greet(greeting(last=last, claim=last + 1))
    fresh = greeting(claim=9)
    assert server.hear(fresh.hello()) == TakenReply(Epoch(2))
    assert server.greet(greeting(claim=10, earlier=(9,), over=2)) == 4
    assert server.greet(greeting(last=2, claim=3)) is None  # the other one is out of date now


def test_a_grant_is_known_from_a_refusal_by_who_asks_whether_another_process_began() -> None:
    start = greeting(last=3, claim=7)
    start.refused(STALE)
    assert not start.was_good
    start.welcomed(Welcome(Epoch(4), LIMITS))
    assert start.was_good
