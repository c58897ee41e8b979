"""Patterns against a model: who subscribes to what, and nothing stays of who left."""

from hypothesis import given
from hypothesis import strategies as st

from oncemq.protocol.names import ClientId, SubscriptionId
from oncemq.protocol.patterns import Branch, Patterns, PatternState, among, is_pattern, matches

CLIENTS = st.sampled_from([ClientId(each) for each in ("ada", "björn", "c")])
SEGMENTS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3)
PATTERNS = st.builds(
    lambda segments, rest: ".".join([*segments, *rest]), SEGMENTS, st.sampled_from([[], [">"]])
)
TOPICS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join)
STEPS = st.lists(st.tuples(st.booleans(), CLIENTS, PATTERNS), max_size=20)

Model = dict[tuple[ClientId, str], SubscriptionId]


def played(steps: list[tuple[bool, ClientId, str]]) -> tuple[Patterns, Model]:
    patterns, model = Patterns(), Model()
    for number, (adds, client, pattern) in enumerate(steps, start=1):
        if adds:
            patterns.add(client, pattern, SubscriptionId(number))
            model[client, pattern] = SubscriptionId(number)
        else:
            patterns.remove(client, pattern)
            model.pop((client, pattern), None)
    return patterns, model


@given(STEPS)
def test_every_pattern_is_known_with_its_clients(steps) -> None:
    patterns, model = played(steps)
    assert patterns.names == sorted({pattern for _, pattern in model})
    assert patterns.count == len(model)
    assert patterns.bytes == sum(len(client.encode()) for client, _ in model)
    assert patterns.by_client.keys() == {client for client, _ in model}
    for _, client, pattern in steps:
        of_pattern = {who: number for (who, what), number in model.items() if what == pattern}
        of_client = {what: number for (who, what), number in model.items() if who == client}
        assert patterns.clients(pattern) == of_pattern
        assert patterns.of(client) == of_client
        states = [PatternState(client, what, number) for what, number in of_client.items()]
        assert sorted(patterns.capture(client), key=str) == sorted(states, key=str)


@given(STEPS, TOPICS)
def test_a_topic_is_wanted_by_each_client_with_a_pattern_that_it_matches(steps, topic: str) -> None:
    patterns, model = played(steps)
    wanting = {client for client, pattern in model if matches(pattern, topic)}
    assert sorted(patterns.wanting(topic)) == sorted(wanting)


@given(STEPS)
def test_when_all_have_left_nothing_stays(steps) -> None:
    patterns, model = played(steps)
    for client, pattern in model:
        patterns.remove(client, pattern)
    assert patterns._root == Branch()
    assert (patterns.names, patterns.by_client) == ([], {})
    assert (patterns.count, patterns.bytes) == (0, 0)


@given(PATTERNS.filter(is_pattern), st.lists(TOPICS, max_size=8))
def test_the_names_that_a_pattern_stands_for_are_those_that_match_it(
    pattern: str, names: list[str]
) -> None:
    names = sorted(names)
    assert among(pattern, names) == [each for each in names if matches(pattern, each)]
