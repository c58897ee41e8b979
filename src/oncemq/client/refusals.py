"""From a server's refusal to the exception a user catches."""

from oncemq.errors import (
    Corrupt,
    Fenced,
    HistoryLost,
    InvalidRequest,
    NoSuchTopic,
    NotSubscribed,
    OnceMQError,
    Refused,
    StaleState,
    StorageFull,
    StorageUnreadable,
    Unwanted,
)
from oncemq.protocol.replies import RefusedReply

_KINDS: dict[str, type[OnceMQError]] = {
    "not_subscribed": NotSubscribed,
    "no_such_topic": NoSuchTopic,
    "unwanted": Unwanted,
    "discarded": Unwanted,
    "fenced": Fenced,
    "stale_state": StaleState,
    "history_lost": HistoryLost,
    "cursor_beyond_end": HistoryLost,
    "storage_full": StorageFull,
    "corrupt": Corrupt,
    "storage_unreadable": StorageUnreadable,
    "name_invalid": InvalidRequest,
    "too_large": InvalidRequest,
    "malformed": InvalidRequest,
    "version": InvalidRequest,
    "opcode": InvalidRequest,
    "offset_out_of_range": InvalidRequest,
}


def error_of(reply: RefusedReply) -> OnceMQError:
    """The exception for a refusal."""
    return _KINDS.get(reply.code, Refused)(reply.detail, code=reply.code)
