"""Epochs: starts that crash anywhere, answers that are lost, and still no epoch is held twice."""

# pyright: reportArgumentType=false
# Names and numbers are written plainly here.

from hypothesis import given, settings
from hypothesis import strategies as st

from oncemq.broker.state.clients import Clients
from oncemq.protocol.names import ClientId, Epoch
from oncemq.protocol.records import ClientOpened
from oncemq.protocol.replies import RefusedReply, TakenReply, Welcome, WelcomeLimits
from oncemq.protocol.requests import Hello
from oncemq.session.handshake import Handshake

ME = ClientId("me")

# Each start: on which of two disks it is, how many of its hellos arrive and are answered before it
# crashes, whether the last one still reaches the server, whether it lives to record its grant, and
# which hello of the past, if any, arrives once more after it.
STARTS = st.lists(
    st.tuples(
        st.sampled_from((0, 0, 0, 1)),
        st.integers(0, 4),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(0, 30),
    ),
    max_size=8,
)


class Disk:
    """What the client's journal keeps."""

    def __init__(self, number: int) -> None:
        self.epoch = 0
        self.claims: list[int] = []
        self.made = number * 1_000

    def claim(self, over: int = 0) -> Handshake:
        earlier = tuple(self.claims)
        self.made += 1
        self.claims.append(self.made)
        return Handshake(
            ME, last_epoch=Epoch(self.epoch), earlier=earlier, claim=self.made, over=Epoch(over)
        )

    def granted(self, epoch: Epoch, claim: int) -> None:
        self.epoch = max(self.epoch, epoch)
        self.claims = [each for each in self.claims if each > claim]


class Server:
    """Hears hellos, and keeps every one it ever heard of."""

    def __init__(self) -> None:
        self.clients = Clients()
        self.said: list[Hello] = []

    def hear(self, hello: Hello) -> Welcome | TakenReply | RefusedReply:
        self.said.append(hello)
        return self.judge(hello)

    def judge(self, hello: Hello) -> Welcome | TakenReply | RefusedReply:
        verdict = self.clients.judge(hello)
        if isinstance(verdict, ClientOpened):
            self.clients.apply(verdict)
            return Welcome(verdict.client_epoch, WelcomeLimits(1, 1, 1))
        return verdict

    @property
    def owner(self) -> int:
        """The disk whose claim was granted last."""
        return self.clients.entries[ME].nonce // 1_000 if self.clients.entries else 0

    def may_refuse(self, disk: Disk, number: int) -> bool:
        """Only a state that was let in before the other one took over."""
        return bool(disk.epoch) and self.owner != number


@given(STARTS)
@settings(max_examples=400)
def test_a_client_that_crashes_anywhere_gets_in_again_and_no_epoch_is_held_twice(starts) -> None:
    server, disks = Server(), (Disk(0), Disk(1))
    held: list[int] = []
    for number, answered, arrives, records, late in [*starts, (None, 99, True, True, None)]:
        place = server.owner if number is None else number
        disk = disks[place]
        start = disk.claim()
        for _ in range(answered):
            answer = server.hear(start.hello())
            if isinstance(answer, Welcome):
                if not start.welcomed(answer):
                    continue
                held.append(answer.client_epoch)
                if records:
                    disk.granted(answer.client_epoch, start.claim)
                break
            if start.refused(answer):
                continue
            if isinstance(answer, RefusedReply):
                assert server.may_refuse(disk, place), f"locked out: {answer}"
                break
            start = disk.claim(answer.client_epoch)
        else:
            if arrives:
                server.hear(start.hello())
        if late is not None and server.said:
            server.judge(server.said[late % len(server.said)])
    assert held == sorted(set(held)), "each start fences the one before"
    assert server.clients.refusal(ME, Epoch(held[-1])) is None
