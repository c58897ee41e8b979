"""Sums over messages: the same whatever their order and their batches, and no other way."""

from hypothesis import given
from hypothesis import strategies as st

from oncemq.wire import batch
from oncemq.wire.batch import Item
from oncemq.wire.contents import MODULUS, contents_of, contents_of_topics

TEXTS = st.text(max_size=3)
ITEMS = st.lists(
    st.builds(
        Item,
        st.binary(max_size=4),
        st.none() | st.binary(max_size=2),
        st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=2),
    ),
    min_size=1,
    max_size=8,
)


def sum_of(items: list[Item]) -> int:
    columns, body = batch.encode(items)
    return contents_of(body, len(items), columns)


@given(ITEMS, st.data())
def test_the_sum_does_not_depend_on_order_and_batches(items: list[Item], data) -> None:
    mixed = data.draw(st.permutations(items))
    cut = data.draw(st.integers(0, len(items)))
    halves = [half for half in (mixed[:cut], mixed[cut:]) if half]
    assert sum(sum_of(half) for half in halves) % MODULUS == sum_of(items)


@given(ITEMS, ITEMS)
def test_other_messages_have_another_sum(one: list[Item], other: list[Item]) -> None:
    same = sorted(map(repr, one)) == sorted(map(repr, other))
    assert (sum_of(one) == sum_of(other)) == same


def test_ranges_of_numbered_rows_differ() -> None:
    """Where a sum of CRCs would be the same."""

    def numbered(first: int) -> list[Item]:
        return [Item(number.to_bytes(4, "big")) for number in range(first, first + 1024)]

    sums = {sum_of(numbered(first)) for first in range(0, 1 << 20, 1 << 14)}
    assert len(sums) == 64


def test_a_key_is_no_payload_and_none_is_not_empty() -> None:
    items = [Item(b"ab"), Item(b"b", b"a"), Item(b"", b"ab"), Item(b"ab", b"")]
    assert len({sum_of([item]) for item in items}) == 4


def test_what_a_topic_gets_belongs_to_it() -> None:
    assert contents_of_topics([("a", 1), ("b", 2), ("a", 3)]) == contents_of_topics(
        [("b", 2), ("a", 4)]
    )
    assert contents_of_topics([("a", 1), ("b", 2)]) != contents_of_topics([("a", 2), ("b", 1)])
    assert contents_of_topics([]) == 1  # 0 means: not said


def test_the_sum_is_the_same_on_every_machine() -> None:
    """Tasks on different ones add up what they have."""
    assert sum_of([Item(b"a")]) == 0x2F42_665B_399E_F840
    assert sum_of([Item(b"a", b"key", {"name": "value"})]) == 0x6DBB_18BD_0BBB_2A1C
    assert sum_of([Item(b"a", b"key")]) == 0x78FD_B4F4_9989_9C4D
    assert sum_of([Item(b"a", None, {"name": "value"})]) == 0x8BB3_7F92_6952_33F1
    assert contents_of_topics([("a", 1)]) == 0x8048_9184_ECF4_6FB8
