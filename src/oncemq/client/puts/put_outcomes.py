"""What became of puts, told to whoever waits, and in the log where nobody does."""

from oncemq.client.news import News
from oncemq.client.puts.discards import Discards, discarded
from oncemq.client.puts.unread_failures import Unseen
from oncemq.client.refusals import error_of
from oncemq.client.ticket import Ticket
from oncemq.client.values import receipts_of
from oncemq.errors import OnceMQError
from oncemq.protocol.names import TopicId
from oncemq.protocol.replies import NO_OFFSET, PutAccepted
from oncemq.session.publisher import PutBatch


class PutOutcomes:
    """Those of one client."""

    def __init__(self, news: News) -> None:
        self._news = news
        self.discards = Discards()
        self.unseen = Unseen()
        self.duplicates = 0

    def accepted(self, parcel: PutBatch, reply: PutAccepted) -> None:
        """The server has it, or had it before, or discarded it."""
        receipts = receipts_of(parcel.topic, reply)
        if reply.duplicate:
            self.duplicates += parcel.count
        if not reply.stored:
            self.discards.note(receipts[0])
        if parcel.required and not reply.stored and (unwanted := discarded((receipts[0],))):
            self._fail(parcel, unwanted)
        elif parcel.ticket is not None:
            parcel.ticket.fill(receipts)

    def refused(self, parcel: PutBatch) -> None:
        """It is not stored, and never will be."""
        assert parcel.refusal is not None
        self._fail(parcel, error_of(parcel.refusal))

    def stored_before(self, parcel: PutBatch, topic_id: TopicId) -> None:
        """The topic that was deleted since had it; nobody knows the place any more."""
        self.duplicates += parcel.count
        if parcel.ticket is not None:
            reply = PutAccepted(topic_id, NO_OFFSET, parcel.count, True, True, 0)
            parcel.ticket.fill(receipts_of(parcel.topic, reply))

    def _fail(self, parcel: PutBatch, error: OnceMQError) -> None:
        self._news.refused(parcel.topic, error, awaited=parcel.ticket is not None)
        # One of an earlier start has no ticket: `flush` raises it.
        self.unseen.fail(parcel.ticket or Ticket(), error)
