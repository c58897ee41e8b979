"""Requests that a leader has not answered: each is told once that it cannot go on."""

import pytest

from oncemq.cluster import open_requests
from oncemq.cluster.open_requests import OpenRequests
from oncemq.protocol.replies import Done, not_leader
from oncemq.protocol.requests import ListTopics
from oncemq.server.served import Outgoing
from oncemq.wire.codec import decode_reply, encode_reply, encode_request

REFUSAL = not_leader("tcp://b:1", 4)
REQUEST = ListTopics()


def asked(requests: OpenRequests, route: bytes, token: int) -> None:
    requests.asked(route, encode_request(token, REQUEST))


def tokens(told: list[Outgoing]) -> list[tuple[bytes, int]]:
    """Who is told, and that it is the refusal."""
    found: list[tuple[bytes, int]] = []
    for route, frames in told:
        token, reply, bodies = decode_reply(frames)
        assert (reply, list(bodies)) == (REFUSAL, [])
        found.append((route, token))
    return found


def test_who_was_not_answered_is_told_once() -> None:
    requests = OpenRequests()
    asked(requests, b"one", 1)
    asked(requests, b"two", 1)
    asked(requests, b"one", 2)
    asked(requests, b"one", 1)  # a retry
    requests.answered([(b"one", encode_reply(1, Done(changed=True)))])
    assert tokens(requests.told(REFUSAL)) == [(b"two", 1), (b"one", 2)]
    assert requests.told(REFUSAL) == []


def test_what_is_answered_unasked_and_what_is_no_message_is_passed_over() -> None:
    requests = OpenRequests()
    requests.asked(b"one", [])
    requests.asked(b"one", [b"short"])
    requests.answered([(b"one", encode_reply(9, Done(changed=True)))])
    assert requests.told(REFUSAL) == []


def test_only_so_many_are_kept_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_requests, "KEPT", 3)
    requests = OpenRequests()
    for token in range(5):
        asked(requests, b"one", token)
    assert tokens(requests.told(REFUSAL)) == [(b"one", token) for token in (2, 3, 4)]
