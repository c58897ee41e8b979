"""A shop on a server of its own, and a client beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from oncemq import App, Client


@pytest.fixture
def app(oncemq_server: str, tmp_path: Path) -> App:
    return App(oncemq_server, id="shop", state=tmp_path / "state")


@pytest.fixture
def mq(oncemq_client: Callable[..., Client]) -> Client:
    return oncemq_client()
