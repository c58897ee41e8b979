"""A world that ends with leaders which hear nobody, or which nobody hears, one after the other.

Law: while two of three are well, something is stored `RESUMES` after the last thing that befell
anybody.
"""

from simulator.replicas.replica_world import SERVERS, ReplicaWorld
from simulator.replicas.witness import Broken

RESUMES = 50  # rounds of 0.1 s


class LeadersCut(ReplicaWorld):
    """One history: all that befalls replicas, peace, then the cuts."""

    def run(self) -> None:
        super().run()
        for _ in range(self.chance.randrange(2, 5)):
            self._cut_the_leader()
        self._recover()

    def _cut_the_leader(self) -> None:
        """In one direction, until another has stored, and longer; then it is mended."""
        leader, chance = self.coordinator.state.leader, self.chance
        assert leader is not None
        others = [each for each in SERVERS if each != leader]
        is_deaf = chance.random() < 0.5
        self._cut_links = {(each, leader) if is_deaf else (leader, each) for each in others}
        self._must_store(f"{leader} {'hears nobody' if is_deaf else 'is heard by nobody'}")
        self._pass_rounds(chance.choice((0, 10, 30, 60)))
        self._mend()
        if chance.random() < 0.5:
            self._must_store("all is mended")
        self._pass_rounds(chance.choice((0, 1, 5, 20)))

    def _pass_rounds(self, rounds: int) -> None:
        """Who hears nothing, and has nothing to write, says nothing."""
        for _ in range(rounds):
            self._one_round(syncs_always=False)

    def _must_store(self, how: str) -> None:
        before = self.witness.committed
        for _ in range(RESUMES):
            self._pass_rounds(1)
            self._put()
            if self.witness.committed > before:
                return
        raise Broken(f"nothing stored for {RESUMES / 10:.0f} s, as {how}: {self._how_it_is()}")
