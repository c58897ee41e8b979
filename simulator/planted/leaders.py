"""Bugs planted in how a client follows the leader; see `planted`."""

from typing import Any

from oncemq.client.engine.engine import Engine
from oncemq.protocol.replies import NOT_LEADER, RefusedReply
from oncemq.session.leader_search import LeaderSearch
from simulator.planted.plant import instead


@instead(Engine, "_comes_again", "leaders")
def _takes_not_leader_for_an_answer(original: Any) -> Any:
    def comes_again(self: Any, exchange: Any, refusal: RefusedReply) -> bool:
        return refusal.code != NOT_LEADER and bool(original(self, exchange, refusal))

    return comes_again


@instead(LeaderSearch, "_heard", "leaders")
def _trusts_a_leader_of_an_older_epoch(_: Any) -> Any:
    def heard(self: Any, reply: RefusedReply) -> bool:
        self.leader, self.leader_epoch = reply.leader, reply.leader_epoch
        self.outcomes.pop(self.leader, None)
        return True

    return heard
