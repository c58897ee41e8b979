"""Epochs: starts that crash anywhere, answers that are lost, and still no epoch is held twice."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.core.clients import Clients
from oncemq.core.greeting import Greeting
from oncemq.core.names import ClientId, Epoch
from oncemq.core.records import ClientOpened
from oncemq.core.replies import Limits, Welcome
from oncemq.core.requests import Hello

ME = ClientId("me")

# Each start: how many of its hellos arrive and are answered before it crashes, whether the last
# one still reaches the server, and whether it lives to record its grant.
STARTS = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), max_size=8)


class Disk:
    """What the client's journal keeps."""

    def __init__(self) -> None:
        self.epoch = 0
        self.claims: list[int] = []
        self.made = 0

    def claim(self) -> Greeting:
        earlier = tuple(self.claims)
        self.made += 1
        self.claims.append(self.made)
        return Greeting(ME, last_epoch=Epoch(self.epoch), earlier=earlier, claim=self.made)

    def granted(self, epoch: Epoch, claim: int) -> None:
        self.epoch = max(self.epoch, epoch)
        self.claims = [each for each in self.claims if each > claim]


def hear(clients: Clients, hello: Hello) -> object:
    verdict = clients.judge(hello)
    if isinstance(verdict, ClientOpened):
        clients.apply(verdict)
        return Welcome(verdict.client_epoch, Limits(1, 1, 1))
    return verdict


@given(STARTS)
@settings(max_examples=300)
def test_a_client_that_crashes_anywhere_gets_in_again_and_no_epoch_is_held_twice(starts) -> None:
    clients, disk = Clients(), Disk()
    held: list[int] = []
    for answered, arrives, records in [*starts, (99, True, True)]:
        start = disk.claim()
        for _ in range(answered):
            answer = hear(clients, start.hello())
            if not isinstance(answer, Welcome):
                assert start.refused(answer), f"locked out: {answer}"
            elif start.welcomed(answer):
                held.append(answer.client_epoch)
                if records:
                    disk.granted(answer.client_epoch, start.claim)
                break
        else:
            if arrives:
                hear(clients, start.hello())
    assert held == sorted(set(held)), "each start fences the one before"
    assert clients.refusal(ME, Epoch(held[-1])) is None
