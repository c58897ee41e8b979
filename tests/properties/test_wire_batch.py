"""Laws of the batch body."""

from hypothesis import given
from hypothesis import strategies as st

from oncemq.wire import batch
from oncemq.wire.batch import Item

TEXT = st.text("aä\N{SNOWMAN}\0", max_size=9)
HEADERS = st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=3)
ITEMS = st.builds(Item, st.binary(max_size=20), st.none() | st.binary(max_size=8), HEADERS)
PLAIN = st.builds(Item, st.binary(max_size=20))
BATCHES = st.lists(ITEMS, min_size=1, max_size=8) | st.lists(PLAIN, min_size=1, max_size=8)

ANYTHING = st.binary(max_size=120)
COUNTS = st.integers(-2, 12) | st.sampled_from([2**31, 2**62, 2**64])
COLUMNS = st.integers(-1, 4) | st.just(2**32)


def fault(body: bytes, count: int, columns: int, message_bytes_max: int = 1 << 20) -> str | None:
    return batch.fault(body, count, columns, message_bytes_max=message_bytes_max)


@given(BATCHES)
def test_decode_undoes_encode(items: list[Item]) -> None:
    columns, body = batch.encode(items)
    assert batch.decode(body, len(items), columns) == items
    assert batch.payloads_of(memoryview(body), len(items), columns) == [i.payload for i in items]
    assert fault(body, len(items), columns) is None


@given(BATCHES, st.data())
def test_a_cut_of_a_cut_is_the_slice_of_the_slice(items: list[Item], data: st.DataObject) -> None:
    columns, body = batch.encode(items)
    for _ in range(2):
        start = data.draw(st.integers(0, len(items) - 1))
        stop = data.draw(st.integers(start + 1, len(items)))
        body = batch.cut(body, len(items), columns, start=start, stop=stop)
        items = items[start:stop]
        assert batch.decode(body, len(items), columns) == items
        assert fault(body, len(items), columns) is None


@given(st.lists(BATCHES, min_size=1, max_size=4), st.data())
def test_a_join_is_the_items_of_all_in_order(batches: list[list[Item]], data) -> None:
    bodies, items = [], []
    for each in batches:
        columns, body = batch.encode(each)
        start = data.draw(st.integers(0, len(each) - 1))
        body = batch.cut(body, len(each), columns, start=start, stop=len(each))
        bodies.append((body, len(each) - start, columns))
        items += each[start:]
    columns, body = batch.join(bodies)
    assert batch.decode(body, len(items), columns) == items
    assert fault(body, len(items), columns) is None


@given(BATCHES, st.data(), st.integers(0, 60))
def test_a_fit_is_the_longest_that_fits(items: list[Item], data, bytes_max: int) -> None:
    columns, body = batch.encode(items)
    start = data.draw(st.integers(0, len(items) - 1))
    stop = data.draw(st.integers(start, len(items)))
    found = batch.fit(body, len(items), columns, start=start, stop=stop, bytes_max=bytes_max)
    sizes = [len(item.payload) for item in items]
    assert start <= found <= stop
    assert sum(sizes[start:found]) <= bytes_max
    assert found == stop or sum(sizes[start : found + 1]) > bytes_max


@given(BATCHES, st.data())
def test_every_truncation_and_every_byte_too_many_is_a_fault(items: list[Item], data) -> None:
    columns, body = batch.encode(items)
    end = data.draw(st.integers(0, len(body) - 1))
    assert fault(body[:end], len(items), columns) is not None
    assert fault(body + data.draw(st.binary(min_size=1, max_size=9)), len(items), columns)


@given(ANYTHING, COUNTS, COLUMNS)
def test_looking_for_a_fault_never_raises_and_what_has_none_can_be_taken_apart(
    body: bytes, count: int, columns: int
) -> None:
    if fault(body, count, columns, 50) is None:
        payloads = batch.payloads_of(body, count, columns)
        assert len(payloads) == count
        assert max(map(len, payloads)) <= 50
        whole = batch.cut(body, count, columns, start=0, stop=count)
        assert batch.payloads_of(whole, count, columns) == payloads
        joined, together = batch.join([(body, count, columns), (body, count, columns)])
        assert batch.payloads_of(together, 2 * count, joined) == payloads * 2


@given(BATCHES, TEXT, st.integers(1, 2**40), st.data())
def test_a_flipped_byte_does_not_pass_the_checksum(items, topic: str, first: int, data) -> None:
    _, body = batch.encode(items)
    producer = data.draw(st.binary(min_size=16, max_size=16))
    seed = batch.seed(topic, producer, first, len(items))
    right = batch.checksum(body, seed)
    at = data.draw(st.integers(0, len(body) - 1))
    flipped = bytearray(body)
    flipped[at] ^= data.draw(st.integers(1, 255))
    assert batch.checksum(flipped, seed) != right
    place = data.draw(st.integers(0, 15))
    other = bytearray(producer)
    other[place] ^= data.draw(st.integers(1, 255))
    assert batch.seed(topic, bytes(other), first, len(items)) != seed
    assert batch.seed(topic, producer, first + 1, len(items)) != seed
