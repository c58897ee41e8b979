"""OnceMQ: publish and subscribe on ZeroMQ, where messages take effect exactly once."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncemq.apps.app import App
    from oncemq.client.aio.client import AsyncClient
    from oncemq.client.blocking.client import Client
    from oncemq.client.pending import Pending
    from oncemq.client.values import Commit, Message, Receipt, Receipts
    from oncemq.databases.inbox import inbox_schema
    from oncemq.databases.outbox import outbox
    from oncemq.databases.outbox_schema import outbox_schema
    from oncemq.errors import (
        ConfigError,
        Corrupt,
        DatabaseRefused,
        Fenced,
        Forked,
        HistoryLost,
        InboxGap,
        InvalidRequest,
        Locked,
        NoSuchTopic,
        NotSubscribed,
        OnceMQError,
        OutboxFull,
        PortInUse,
        Refused,
        StaleState,
        StorageFull,
        StorageRefused,
        StorageUnreadable,
        StorageUnsure,
        TooManyFiles,
        Unreachable,
        Unwanted,
    )
    from oncemq.protocol.records import Retention
    from oncemq.protocol.replies import SubscriptionInfo, TopicInfo, TopicShown
    from oncemq.relay.relay import Relay

    __version__: str

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "Commit",
    "ConfigError",
    "Corrupt",
    "DatabaseRefused",
    "Fenced",
    "Forked",
    "HistoryLost",
    "InboxGap",
    "InvalidRequest",
    "Locked",
    "Message",
    "NoSuchTopic",
    "NotSubscribed",
    "OnceMQError",
    "OutboxFull",
    "Pending",
    "PortInUse",
    "Receipt",
    "Receipts",
    "Refused",
    "Relay",
    "Retention",
    "StaleState",
    "StorageFull",
    "StorageRefused",
    "StorageUnreadable",
    "StorageUnsure",
    "SubscriptionInfo",
    "TooManyFiles",
    "TopicInfo",
    "TopicShown",
    "Unreachable",
    "Unwanted",
    "__version__",
    "inbox_schema",
    "outbox",
    "outbox_schema",
]

_HOMES = {
    "App": "oncemq.apps.app",
    "AsyncClient": "oncemq.client.aio.client",
    "Client": "oncemq.client.blocking.client",
    "Commit": "oncemq.client.values",
    "Message": "oncemq.client.values",
    "Pending": "oncemq.client.pending",
    "Receipt": "oncemq.client.values",
    "Receipts": "oncemq.client.values",
    "Relay": "oncemq.relay.relay",
    "Retention": "oncemq.protocol.records",
    "SubscriptionInfo": "oncemq.protocol.replies",
    "TopicInfo": "oncemq.protocol.replies",
    "TopicShown": "oncemq.protocol.replies",
    "inbox_schema": "oncemq.databases.inbox",
    "outbox": "oncemq.databases.outbox",
    "outbox_schema": "oncemq.databases.outbox_schema",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: the command line starts in a moment."""
    if name == "__version__":
        return import_module("importlib.metadata").version("oncemq")
    if name not in __all__:
        raise AttributeError(f"module 'oncemq' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "oncemq.errors")), name)
