"""The publisher's side: numbers kept through retries, order, and renumbering when told to."""

from oncemq.protocol.limits import PUTS_UNDER_WAY_MAX
from oncemq.protocol.names import Offset, ProducerId, Sequence, TopicId
from oncemq.protocol.replies import PutAccepted, RefusedReply, Resumed
from oncemq.session.publisher import ProducerNumbers, Publisher, PutBatch

MINE, GUEST = ProducerId(b"m" * 16), ProducerId(b"g" * 16)
ID, OTHER = TopicId(1), TopicId(2)


def parcel(count: int = 1, *, producer: ProducerId = MINE, ticket: object = "ticket") -> PutBatch:
    return PutBatch("orders", producer, producer == MINE, count, 0, b"", ticket=ticket)


def number(publisher: Publisher, parcel: PutBatch) -> int:
    """Give it its producer's next numbers, as the put buffer does."""
    numbers = publisher.numbers(parcel.topic, parcel.producer)
    parcel.first_sequence = numbers.take(parcel.count)
    return parcel.first_sequence


class Office:
    """A publisher whose parcels are sent when they are ready."""

    def __init__(self, *parcels: PutBatch) -> None:
        self.publisher = Publisher()
        self.lane = self.publisher.lane("orders")
        for each in parcels:
            self.add(each)

    def add(self, each: PutBatch) -> PutBatch:
        number(self.publisher, each)
        self.publisher.add(each)
        return each

    def send(self) -> list[int]:
        """Send what is ready; the first sequences."""
        sent = list(self.publisher.ready(self.lane))
        for each in sent:
            each.under_way = True
        return [each.first_sequence for each in sent]

    def accept(self, each: PutBatch) -> None:
        self.publisher.accepted(each, PutAccepted(ID, Offset(0), each.count, True, False, 0))

    def refuse(self, each: PutBatch, code: str) -> bool:
        return self.publisher.refused(each, RefusedReply(code, ""))

    def resume(self, last: int, topic: TopicId = ID, producer: ProducerId = MINE) -> list[PutBatch]:
        plan = self.publisher.plan(self.lane, producer, Resumed(topic, Sequence(last)))
        self.publisher.carry_out(self.lane, producer, plan)
        return plan.gone

    @property
    def standing(self) -> ProducerNumbers:
        return self.lane.numbers[MINE]

    @property
    def numbers(self) -> list[int]:
        return [each.first_sequence for each in self.lane.parcels]


def test_puts_are_numbered_from_1_without_gap() -> None:
    office = Office(parcel(2), parcel(1), parcel(5), parcel(1))
    assert office.numbers == [1, 3, 4, 9]
    assert office.publisher.unacknowledged == 9


def test_each_topic_and_each_producer_is_numbered_apart() -> None:
    office = Office(parcel(2), parcel(3, producer=GUEST), parcel(1))
    other = PutBatch("refunds", MINE, True, 1, 0, b"")
    assert number(office.publisher, other) == 1
    assert office.numbers == [1, 1, 3]


def test_no_more_are_under_way_than_the_server_keeps_receipts_of() -> None:
    parcels = [parcel() for _ in range(PUTS_UNDER_WAY_MAX + 2)]
    office = Office(*parcels)
    assert office.send() == list(range(1, PUTS_UNDER_WAY_MAX + 1))
    assert office.send() == []
    office.accept(parcels[0])
    assert office.send() == [PUTS_UNDER_WAY_MAX + 1]


def test_a_number_is_kept_through_every_retry() -> None:
    first, second = parcel(2), parcel()
    office = Office(first, second)
    office.send()
    for code in ("checksum", "unknown_client"):
        assert office.refuse(first, code) is False
        assert office.send() == [1]
    assert (first.first_sequence, second.first_sequence) == (1, 3)


def test_an_accepted_parcel_is_done_and_names_the_topic() -> None:
    first = parcel(3)
    office = Office(first)
    assert list(office.publisher.busy.values()) == [office.lane]
    office.accept(first)
    assert not office.publisher.busy
    assert office.publisher.all_lanes() == [office.lane]
    assert (office.standing.topic_id, office.publisher.unacknowledged) == (ID, 0)
    assert number(office.publisher, parcel()) == 4


def test_a_parcel_may_be_accepted_out_of_turn() -> None:
    first, second = parcel(), parcel()
    office = Office(first, second)
    office.accept(second)
    assert office.numbers == [1]


# ------------------------------------------------------------------ order between producers


def test_a_put_that_does_not_last_waits_for_the_lasting_ones_before_it() -> None:
    lasting, quick, behind = parcel(), parcel(producer=GUEST), parcel()
    office = Office(lasting, quick, behind)
    assert office.send() == [1]
    assert office.send() == []
    office.accept(lasting)
    assert office.send() == [1]
    assert quick.under_way
    assert not behind.under_way
    office.accept(quick)
    assert office.send() == [2]


def test_unrecorded_counts_what_no_disk_of_ours_holds() -> None:
    office = Office(parcel(2), parcel(3, producer=GUEST))
    assert office.publisher.unrecorded() == 3


# ------------------------------------------------------------------ the server disagrees


def test_after_topic_changed_nothing_leaves_before_the_resume() -> None:
    first, second = parcel(), parcel()
    office = Office(first, second)
    office.send()
    assert office.refuse(first, "topic_changed") is False
    # What is under way will be answered wrongly.
    assert [each.first_sequence for each in office.publisher.cancelled] == [2]
    assert office.send() == []


def test_on_another_topic_of_the_name_everything_unanswered_is_numbered_from_there() -> None:
    done, first, second = parcel(4), parcel(2), parcel()
    office = Office(done, first, second)
    office.send()
    office.accept(done)
    assert office.numbers == [5, 7]
    office.refuse(first, "topic_changed")
    office.resume(0, OTHER)
    assert office.numbers == [1, 3]
    assert office.standing.topic_id == OTHER
    assert office.send() == [1, 3]
    assert number(office.publisher, parcel()) == 4


def test_after_a_gap_what_the_server_has_keeps_its_numbers_and_is_sent_for_its_receipt() -> None:
    parcels = [parcel(2), parcel(1), parcel(3)]
    office = Office(*parcels)
    office.standing.topic_id = ID
    office.send()
    office.refuse(parcels[2], "sequence_gap")
    office.resume(2)
    assert office.numbers == [1, 3, 4]
    assert office.send() == [1, 3, 4]
    assert office.publisher.unacknowledged == 6


def test_numbers_given_before_the_topic_was_known_count_on_whichever_has_the_name() -> None:
    """Else a put that was stored, and whose answer is still on its way, would be stored again."""
    stored, refused = parcel(), parcel()
    office = Office(stored, refused)
    office.send()
    assert office.refuse(refused, "too_large") is True
    office.resume(1, ID)
    assert office.numbers == [1]


def test_numbers_the_server_has_on_another_topic_do_not_count() -> None:
    first = parcel(2)
    office = Office(first)
    office.standing.topic_id = ID
    office.send()
    office.refuse(first, "topic_changed")
    office.resume(9, OTHER)
    assert office.numbers == [10]


def test_a_resume_renumbers_only_the_producer_it_asked_about() -> None:
    mine, quick = parcel(2), parcel(producer=GUEST)
    office = Office(mine, quick)
    office.standing.topic_id = ID
    office.send()
    office.refuse(mine, "topic_changed")
    office.resume(5, OTHER)
    assert office.numbers == [6, 1]


# ------------------------------------------------------------------ the server says no


def test_a_refused_parcel_goes_and_those_behind_it_take_its_numbers() -> None:
    first, refused, last = parcel(1), parcel(2), parcel(1)
    office = Office(first, refused, last)
    office.standing.topic_id = ID
    office.send()
    office.accept(first)
    assert office.refuse(refused, "storage_full") is True
    assert [each.first_sequence for each in office.publisher.cancelled] == [4]
    office.resume(1)
    assert office.numbers == [2]
    assert office.send() == [2]
    assert office.publisher.unacknowledged == 1


def test_the_last_parcel_refused_gives_its_numbers_back() -> None:
    first, refused = parcel(), parcel(3)
    office = Office(first, refused)
    office.standing.topic_id = ID
    office.send()
    office.accept(first)
    assert office.refuse(refused, "too_large") is True
    late = office.add(parcel())
    if late.first_sequence != 2:  # then the server says so
        office.send()
        office.refuse(late, "sequence_gap")
        office.resume(1)
    assert office.numbers == [2]


def test_a_parcel_from_an_earlier_start_waits_for_room_because_nobody_would_hear_of_it() -> None:
    left = parcel(ticket=None)
    office = Office(left)
    office.send()
    assert office.refuse(left, "storage_full") is False
    assert office.refuse(left, "fenced") is False
    office.publisher.try_again()
    assert office.send() == [1]
    assert office.refuse(left, "too_large") is True


def test_abandoning_gives_everything_back() -> None:
    parcels = [parcel(2), parcel(1, producer=GUEST)]
    office = Office(*parcels)
    assert office.publisher.abandon() == parcels
    assert (office.publisher.unacknowledged, office.publisher.busy) == (0, {})


def test_a_refusal_is_believed_when_a_resume_does_not_find_the_put() -> None:
    first, second = parcel(2), parcel()
    office = Office(first, second)
    office.send()
    assert office.refuse(first, "storage_full") is True
    assert (office.send(), office.publisher.unacknowledged) == ([], 3)  # it may be stored yet
    assert office.resume(0) == [first]
    assert (office.numbers, office.publisher.unacknowledged) == ([1], 1)


def test_a_refused_put_of_which_another_copy_was_stored_is_sent_again_for_its_receipt() -> None:
    first, second = parcel(2), parcel()
    office = Office(first, second)
    office.send()
    office.refuse(first, "storage_full")
    assert office.resume(2) == []
    assert office.send() == [1, 3]


def test_a_number_used_for_other_bytes_is_refused_for_good_though_it_is_there() -> None:
    first = parcel()
    office = Office(first)
    office.send()
    office.refuse(first, "payload_conflict")
    plan = office.publisher.plan(office.lane, MINE, Resumed(ID, Sequence(1)))
    assert plan.is_change  # the numbers are the same: the disk is to know that the put is gone
    assert office.resume(1) == [first]


def test_numbers_with_receipts_are_missing_from_where_the_server_stands() -> None:
    first, second = parcel(3), parcel()
    office = Office(first, second)
    office.send()
    office.accept(first)

    def missing(topic: TopicId, last: int, *, lost: bool = False) -> tuple[int, int] | None:
        reply = Resumed(topic, Sequence(last), lost=lost)
        return office.publisher.missing(office.lane, MINE, reply)

    assert [missing(ID, last) for last in (3, 2, 1, 0)] == [None, (3, 3), (2, 3), (1, 3)]
    assert missing(OTHER, 2) is None  # deleted, and made anew
    assert missing(OTHER, 2, lost=True) == (1, 3)
    one, two = parcel(), parcel()
    office = Office(one, two)
    office.send()
    office.accept(one)
    assert missing(OTHER, 0, lost=True) == (1, 1)


def test_only_what_changes_something_is_a_change() -> None:
    first, second = parcel(2), parcel()
    office = Office(first, second)
    office.send()
    office.accept(first)
    plan = office.publisher.plan(office.lane, MINE, Resumed(ID, Sequence(2)))
    assert not plan.is_change
    assert office.publisher.plan(office.lane, MINE, Resumed(OTHER, Sequence(2))).is_change
    assert office.publisher.plan(office.lane, MINE, Resumed(ID, Sequence(1))).is_change
    was_there = Resumed(ID, Sequence(3), deleted_after=Sequence(3))
    stored = office.publisher.plan(office.lane, MINE, was_there)
    assert (stored.stored, stored.next, stored.is_change) == ([second], 4, True)


def test_idle_numbers_of_a_deleted_topic_are_forgotten_by_the_servers_word() -> None:
    office = Office(first := parcel(3))
    office.send()
    office.accept(first)
    asked = office.publisher.idle()
    assert [(each.topic, each.topic_id, each.acknowledged) for each in asked] == [("orders", ID, 3)]
    assert list(office.publisher.by_topic["orders"].numbers) == [MINE]
    assert office.publisher.forget(asked, {OTHER}) == set()
    assert office.publisher.forget(asked, {ID}) == {MINE}
    assert office.publisher.by_topic == {}


def test_numbers_with_parcels_or_of_another_topic_by_now_are_not_forgotten() -> None:
    office = Office(first := parcel())
    office.send()
    office.accept(first)
    asked = office.publisher.idle()
    second = office.add(parcel())
    assert office.publisher.idle() == []
    assert office.publisher.forget(asked, {ID}) == set()
    office.send()
    office.refuse(second, "topic_changed")
    office.resume(0, topic=OTHER)
    office.send()
    office.publisher.accepted(second, PutAccepted(OTHER, Offset(0), 1, True, False, 0))
    assert office.publisher.forget(asked, {ID}) == set()
    assert office.standing == ProducerNumbers(OTHER, Sequence(2))


def test_only_the_producer_whose_topic_is_gone_is_forgotten() -> None:
    office = Office(first := parcel(), guest := parcel(producer=GUEST))
    office.send()
    office.accept(first)
    office.send()
    office.publisher.accepted(guest, PutAccepted(OTHER, Offset(0), 1, True, False, 0))
    assert office.publisher.forget(office.publisher.idle(), {ID}) == {MINE}
    assert list(office.lane.numbers) == [GUEST]


def test_numbers_that_count_on_no_topic_are_forgotten_without_a_word_of_the_server() -> None:
    office = Office(refused := parcel())
    office.send()
    office.refuse(refused, "unwanted")
    assert office.resume(0, topic=TopicId(0)) == [refused]
    assert office.publisher.forget(office.publisher.idle(), set()) == {MINE}


def test_receipts_that_a_deleted_topic_did_not_have_are_missing() -> None:
    """The server went back in time, and the topic was deleted there."""
    office = Office(parcel(30))
    office.send()
    office.accept(office.lane.parcels[0])
    office.add(parcel())

    def missing(topic: TopicId, last: int, deleted_after: int) -> tuple[int, int] | None:
        reply = Resumed(topic, Sequence(last), deleted_after=Sequence(deleted_after))
        return office.publisher.missing(office.lane, MINE, reply)

    nowhere = TopicId(0)
    assert [missing(each, 0, 10) for each in (OTHER, nowhere)] == [(11, 30), (11, 30)]
    assert [missing(each, 0, 30) for each in (OTHER, nowhere)] == [None, None]
    assert missing(OTHER, 0, 31) is None  # the answer to the last one was lost
    assert missing(OTHER, 0, 0) is None  # how far it had come is not known
    assert missing(ID, 10, 0) == (11, 30)
    office.standing.topic_id = nowhere
    assert missing(OTHER, 0, 10) is None  # whose numbers these are is not known
