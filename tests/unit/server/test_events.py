"""The log says what happened: once, escaped, and not as often as a peer likes."""

import logging
from typing import Any

import pytest

from oncemq.protocol.names import ClientId, Epoch, Micros
from oncemq.protocol.requests import DeleteTopic, Hello, Settle, StatusRequest
from oncemq.server.events import LEVELS, LINES_A_MINUTE, Events


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oncemq.server")


def test_who_is_let_in_is_told_with_its_epoch(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    host.ask(Hello(ClientId("ada"), Epoch(0), 1))
    assert "client let in id='ada' epoch=1" in caplog.text
    caplog.clear()
    host.ask(Hello(ClientId("ada"), Epoch(0), 1))  # a repeat of the same start
    assert caplog.text == ""


def test_a_fenced_client_is_told(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    host.ask(Hello(ClientId("ada"), Epoch(0), 1))
    host.ask(Hello(ClientId("ada"), Epoch(1), 2))
    host.ask(Settle(ClientId("ada"), Epoch(1), ()))
    assert "client fenced request='Settle' code='fenced' client='ada'" in caplog.text
    assert host.ask(StatusRequest()).facts["client_fenced"] == 1


def test_what_a_peer_chose_is_escaped(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    host.ask(Settle(ClientId("\x1b[31m\u202e"), Epoch(1), ()))
    assert "\\x1b[31m\\u202e" in caplog.text
    assert "\x1b" not in caplog.text


def test_a_flood_is_counted_and_told_in_part(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(500):
        host.ask(DeleteTopic("nowhere"))
    assert len(caplog.records) == LINES_A_MINUTE
    assert host.ask(StatusRequest()).facts["request_refused"] == 500
    host.now += 60_000_000
    host.ask(DeleteTopic("nowhere"))
    assert f"request refused, and {500 - LINES_A_MINUTE} more" in caplog.text


@pytest.mark.parametrize("kind", LEVELS)
def test_every_kind_of_fact_is_counted_from_zero(kind: str) -> None:
    events = Events()
    assert events.counts[kind] == 0
    events.note(kind, Micros(1))
    assert events.counts[kind] == 1
