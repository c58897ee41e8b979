"""The limits of a server (G8), and what it promises about the disk."""

import msgspec

from oncemq.protocol.replies import WelcomeLimits
from oncemq.protocol.structs import ENTRIES_MAX

# Receipts kept word for word, and puts that a client has under way on one topic.
PUTS_UNDER_WAY_MAX = 8


class ServerLimits(msgspec.Struct, frozen=True):
    """What a server takes at most; over a limit comes a clear refusal."""

    message_bytes_max: int = 16 << 20
    batch_bytes_max: int = 64 << 20
    batch_messages_max: int = 1_000_000
    topics_max: int = 1_000_000
    subscriptions_max: int = 100_000  # of one topic
    pattern_topics_max: int = 100_000  # that a pattern finds: each is a fact, in one go
    wait_ms_max: int = 60_000
    retry_ms: int = 3_000  # a listener that has not settled what came is told again after this
    idempotency_ms: int = 7 * 86_400_000  # how long an idempotency key is remembered
    idempotency_keys_max: int = 1_000_000  # of one topic
    stage_ms: int = 86_400_000  # an open stage that is silent for so long is given up
    stages_max: int = 1_000_000  # open ones; the others are bounded by what topics keep of them
    stage_bytes_max: int = 64 << 30  # of all open stages, not yet published
    clients_max: int = 1_000_000  # client ids, about 200 bytes of memory each
    producers_max: int = 1_000_000  # of one topic, about 400 bytes to a kilobyte each
    owners_max: int = 1_000_000
    commit_pieces_max: int = 10_000  # and as many inputs
    request_entries_max: int = ENTRIES_MAX  # of each list in a request; more are not even decoded
    gathered_bytes_max: int = 128 << 20  # of facts and answers: then nothing more is received
    held_answers_max: int = 100_000  # that wait for the disk, likewise
    sync_ms: int = 0  # 0: synced before the answer; else what a power cut may take

    @property
    def limits(self) -> WelcomeLimits:
        """The part of it a client must know."""
        return WelcomeLimits(self.message_bytes_max, self.batch_bytes_max, self.batch_messages_max)
