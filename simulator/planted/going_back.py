"""Bugs planted in what a server that went back in time, and its clients, must do; see `planted`."""

from typing import Any

import msgspec

from oncemq.broker import comparison
from oncemq.client.admin import accepting
from oncemq.client.engine.engine import Engine
from oncemq.client.engine.handshake import HandshakeEngine
from oncemq.client.engine.transactions import Transactions
from oncemq.client.lost_history import LostHistory
from oncemq.client.puts.put_buffer import PutBuffer
from oncemq.client.state.memory_journal import MemoryJournal
from oncemq.client.verbs import messages
from oncemq.protocol.client_replies import LostCursor
from oncemq.protocol.names import NO_SUBSCRIPTION
from oncemq.session.inbox_rule import Inbox
from oncemq.session.inflight import InFlight
from oncemq.storage.backup import restore
from oncemq.storage.segments.layout import replace_file
from simulator.planted.plant import instead


@instead(restore, "continue_format", "back")
def _restores_without_raising_the_generation(_: Any) -> Any:
    def continue_format(disk: Any, directory: str, old: Any, random_bytes: Any) -> Any:
        replace_file(disk, f"{directory}/FORMAT", msgspec.json.encode(old))
        return old

    return continue_format


@instead(HandshakeEngine, "_compare", "back")
def _does_not_compare_its_cursors(_: Any) -> Any:
    def compare(self: Any, log: Any, then: Any) -> None:
        then(LostHistory([], [], []))

    return compare


@instead(PutBuffer, "_lost", "back")
def _does_not_compare_its_numbers(_: Any) -> Any:
    def lost(self: Any, *args: Any) -> None:
        return None

    return lost


@instead(Transactions, "acknowledged", "back and deals")
def _does_not_compare_its_transactions(_: Any) -> Any:
    def acknowledged(self: Transactions) -> tuple[()]:
        return ()

    return acknowledged


@instead(accepting, "goes_on_at", "back")
def _keeps_its_cursor_when_a_loss_is_accepted(original: Any) -> Any:
    def goes_on_at(lost: LostCursor) -> Any:
        return None if original(lost) is None else lost.known

    return goes_on_at


@instead(messages, "_ended", "back and wild")
def _does_not_note_which_pattern_it_ended(original: Any) -> Any:
    def ended(engine: Any, topic: str, reply: Any) -> list[tuple[str, Any]]:
        return [(name, NO_SUBSCRIPTION) for name, _ in original(engine, topic, reply)]

    return ended


@instead(MemoryJournal, "settle", "back and wild")
def _forgets_a_cursor_that_another_one_replaces(original: Any) -> Any:
    def settle(self: MemoryJournal, client_epoch: Any, moved: Any, **options: Any) -> None:
        ended = vars(self)["_ended"]
        original(self, client_epoch, moved, **options)
        vars(self)["_ended"] = ended

    return settle


@instead(Engine, "meet", "back")
def _hands_out_what_it_fetched_before_the_server_went_back(_: Any) -> Any:
    def meet(self: Any, generation: Any) -> None:
        self.context.generation = generation

    return meet


@instead(Inbox, "is_of", "back and inbox")
def _believes_the_database_of_before_the_server_went_back(_: Any) -> Any:
    def is_of(self: Inbox, generation: Any) -> bool:
        return True

    return is_of


@instead(InFlight, "is_of_before", "back")
def _takes_an_answer_to_its_older_epoch_for_its_own(_: Any) -> Any:
    def is_of_before(self: InFlight, token: int, client_epoch: Any) -> bool:
        return False

    return is_of_before


@instead(comparison, "_has_parted", "back")
def _takes_another_branch_of_history_for_its_own(_: Any) -> Any:
    def has_parted(shard: Any, question: Any) -> bool:
        return False

    return has_parted
