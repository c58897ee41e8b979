"""Bugs planted in what waits: puts for a permit, messages for their subscription; see `planted`."""

from typing import Any

from oncemq.broker.gets import Gets
from oncemq.broker.permits import Permits
from oncemq.protocol.step import Caller, Owed, Step
from simulator.planted.plant import instead


@instead(Permits, "holds", "wild and full_disk")
def _stores_what_was_sent_before_a_resume(_: Any) -> Any:
    def holds(self: Permits, topic: str, producer: Any, permit: int, *, named: bool) -> bool:
        return True

    return holds


@instead(Gets, "_deliver", "wild and server_cut", "wild and server_trap", "wild and blackout")
def _gives_messages_before_their_subscription_is_durable(original: Any) -> Any:
    def deliver(self: Any, step: Step, caller: Caller, get: Any) -> bool:
        given = original(self, step, caller, get)
        if given:
            step.replies[-1] = Owed(caller, step.replies[-1].answer)
        return given

    return deliver
