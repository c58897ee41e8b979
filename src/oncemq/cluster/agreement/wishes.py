"""What a server wants to be changed in etcd, each as one transaction until its keys are others.

A wish is decided by values of certain revisions, and its transaction names them. While those are
the newest that are known, the wish is the same: repeated, it is the same transaction to the byte,
so that it cannot happen twice. Once a later revision is known, it has happened or never will.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from oncemq.cluster.agreement.known_keys import KnownKeys
from oncemq.coordination.coordinator import (
    Found,
    Happened,
    KeyEntry,
    Outcome,
    Overtaken,
    Request,
    Transact,
    Unanswered,
)
from oncemq.protocol.names import Micros

ASK_AGAIN = Micros(1_000_000)  # after no answer, or one that brought nothing new


@dataclass(slots=True)
class Wish:
    """A transaction, and whether an answer to it is awaited."""

    transaction: Transact
    is_under_way: bool = False
    due: Micros = Micros(0)


class Wishes:
    """All of one server; requests are left in a list, under tokens of their own."""

    def __init__(self, known: KnownKeys, new_nonce: Callable[[], str]) -> None:
        self.requests: list[tuple[Request, int]] = []
        self._known, self._new_nonce = known, new_nonce
        self._under_way: dict[int, Wish] = {}
        self._tokens = 0
        self.nonce = new_nonce()  # for the next transaction

    def secret(self) -> str:
        """A new one, for a cluster that is founded."""
        return self._new_nonce() + self._new_nonce()

    def made(self, puts: dict[str, bytes]) -> Wish:
        """By what is known now, and sent; the nonce is in it, and used up."""
        self.nonce = self._new_nonce()
        wish = Wish(Transact({key: self._known.revision(key) for key in puts}, puts))
        self.send(wish)
        return wish

    def send(self, wish: Wish) -> None:
        """Ask for it, as it is."""
        self._tokens += 1
        wish.is_under_way = True
        self._under_way[self._tokens] = wish
        self.requests.append((wish.transaction, self._tokens))

    def is_open(self, wish: Wish) -> bool:
        """Whether it may still happen, as far as is known: nobody changed its keys."""
        expected = wish.transaction.expected
        return all(self._known.revision(key) == revision for key, revision in expected.items())

    def repeated(self, wish: Wish | None, now: Micros) -> bool:
        """Whether it is still open: then it is asked again, when that is due."""
        if wish is None or not self.is_open(wish):
            return False
        if not wish.is_under_way and now >= wish.due:
            self.send(wish)
        return True

    def answered(self, token: int, outcome: Outcome, now: Micros) -> None:
        """What became of one of them: what is known now."""
        wish = self._under_way.pop(token, None)
        if wish is None:
            return
        wish.is_under_way, wish.due = False, Micros(now + ASK_AGAIN)
        match outcome:
            case Happened(revision):
                # It expects revisions of no other keys than it puts: this one is of each of them.
                puts = wish.transaction.puts
                self._known.answered(
                    {key: KeyEntry(key, value, revision) for key, value in puts.items()}
                )
            case Overtaken(entries):
                self._known.answered(entries)
            case Unanswered() | Found():
                pass
            case _:
                assert_never(outcome)
