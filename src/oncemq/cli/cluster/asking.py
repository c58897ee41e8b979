"""What the servers of a cluster say of themselves: all are asked at once, each for a short time.

A server that hangs costs its time limit and holds up no other.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from oncemq.cli.cluster.report import ServerAnswer
from oncemq.errors import OnceMQError

ANSWER_SECONDS = 2.0


def ask_all(addresses: Sequence[str], *, seconds: float = ANSWER_SECONDS) -> list[ServerAnswer]:
    """Those that were named, and those that they tell of; no address twice."""
    asked = _ask_each(dict.fromkeys(addresses), seconds)
    told = {address for each in asked for address in _told_addresses(each)}
    named = {each.name for each in asked if each.name}
    others = [address for address, name in told if name not in named]
    more = dict.fromkeys(sorted(set(others) - {each.address for each in asked}))
    return asked + _ask_each(more, seconds)


def _ask_each(addresses: Iterable[str], seconds: float) -> list[ServerAnswer]:
    todo = list(addresses)
    if not todo:
        return []
    with ThreadPoolExecutor(len(todo), "asking") as pool:
        return list(pool.map(_ask, todo, [seconds] * len(todo)))


def _ask(address: str, seconds: float) -> ServerAnswer:
    from oncemq import Client
    from oncemq.cli.terminal.probe import trouble_at

    try:
        with Client(address, timeout=seconds) as client:
            return ServerAnswer(address, dict(client.status()))
    except OnceMQError as error:
        why = trouble_at(address) or f"it answers nothing within {seconds:g} s"
        return ServerAnswer(address, None, why if error.code == "unreachable" else error.detail)


def _told_addresses(answer: ServerAnswer) -> Iterable[tuple[str, str]]:
    """Addresses of other servers, each with the server's id."""
    for fact, value in (answer.facts or {}).items():
        kind, _, rest = fact.partition(".")
        name, _, what = rest.rpartition(".")
        if kind == "server" and what == "address" and name:
            yield str(value), name
