"""Bugs planted in what waits: puts for a permit, messages for a subscription, requests for room.

See `planted`.
"""

from typing import Any

from oncemq.broker.gets import Gets
from oncemq.broker.permits import Permits
from oncemq.protocol.step import Caller, Owed, Step
from oncemq.storage.log.room import Room
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


@instead(Room, "ask_again", "full_disk")
def _takes_its_disk_for_full_for_good(_: Any) -> Any:
    def ask_again(self: Room) -> None:
        pass

    return ask_again
