"""One request to etcd until it is known what became of it.

A transaction whose answer is lost may have happened, may never happen, or may still be on its way
to etcd's log and happen later. So the loss of an answer is settled by the same compare-and-swap
again, which reads in its other branch what it compared:

- the comparison holds: it had not happened, it has now, and the first one cannot happen any more;
- it fails, and what it was to put is there to the byte: it had happened (a value's nonce makes it
  unlike any other);
- it fails otherwise: it cannot happen any more, or was followed by a change of somebody else.

Sending it again is safe only because it expects a revision of each key that it changes, and a key
has a revision once (`Transact` refuses anything else). The exception is a key that is made, and
then deleted by somebody else before the late first one arrives: that one makes it again. Keys that
are deleted at all (`remove` of a server) are small facts that their servers write again.

Law: what cannot be known in time is `Unanswered`, never a guess.
"""

from oncemq.coordination.coordinator import (
    Found,
    Happened,
    KeyEntry,
    Outcome,
    Overtaken,
    ReadEntries,
    Request,
    Transact,
    Unanswered,
)
from oncemq.coordination.etcd.rules.calls import Attempt, Attempted, CallAnswer, HasRead, ReadKeys


class Inquiry:
    """What to ask, and what the answers mean."""

    def __init__(self, request: Request, *, deadline: int) -> None:
        self._request = request
        self._deadline = deadline
        self._is_in_doubt = False  # an attempt before may have happened
        self.call = ReadKeys(request.keys) if isinstance(request, ReadEntries) else Attempt(request)

    def answered(self, answer: CallAnswer) -> Outcome:
        """Etcd answered."""
        match self._request, answer:
            case ReadEntries(), HasRead(entries, revision):
                return Found(entries, revision)
            case Transact(), Attempted(succeeded=True, revision=revision):
                return Happened(revision)
            case Transact() as transaction, Attempted(entries=entries):
                if self._has_happened(transaction, entries):
                    return Happened(max((each.revision for each in entries.values()), default=0))
                return Overtaken(entries)
            case _:
                raise AssertionError(f"{self._request} was answered {answer}")

    def failed(self, why: str, *, now: int) -> Unanswered | None:
        """No answer came, or none that says what happened. None: send `call` again."""
        self._is_in_doubt = True
        return Unanswered(why) if now >= self._deadline else None

    def _has_happened(self, transaction: Transact, entries: dict[str, KeyEntry]) -> bool:
        """Whether what is there is what an earlier attempt left."""
        return (
            self._is_in_doubt
            and all(
                key in entries and entries[key].value == value
                for key, value in transaction.puts.items()
            )
            and not any(key in entries for key in transaction.deletes)
        )
