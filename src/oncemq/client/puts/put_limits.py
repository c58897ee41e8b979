"""What a server would refuse of a put, or the outbox: refused before anything is recorded."""

from collections.abc import Sequence

from oncemq.errors import InvalidRequest, OutboxFull
from oncemq.protocol.names import SYSTEM_TOPICS, is_system, name_fault
from oncemq.protocol.patterns import is_pattern, wildcard_fault
from oncemq.protocol.replies import WelcomeLimits


def check_limits(
    limits: WelcomeLimits, topic: str, *, payload_bytes: int, batch_bytes: int
) -> None:
    """Raise what the server would say of the name, of the largest payload, or of the batch."""
    fault = name_fault(topic)
    if fault:
        raise InvalidRequest(fault, code="name_invalid")
    if payload_bytes > limits.message_bytes:
        raise InvalidRequest(
            f"a message of {payload_bytes} bytes is over the limit of "
            f"{limits.message_bytes}; split it, or raise the server's --message-max",
            code="too_large",
        )
    if batch_bytes > limits.batch_bytes:
        raise InvalidRequest(
            f"a batch of {batch_bytes} bytes is over the limit of {limits.batch_bytes}; "
            "put it in smaller ones",
            code="too_large",
        )


def check_outputs(topics: Sequence[str]) -> None:
    """Raise what a commit would be refused for: at once, where it is known whose name it is."""
    for topic in topics:
        fault = name_fault(topic)
        if fault is None and is_system(topic) and topic not in SYSTEM_TOPICS:
            fault = f"{topic!r}: names with a leading '_' are the system's"
        if fault is None and is_pattern(topic):
            fault = wildcard_fault(topic)
        if fault is not None:
            raise InvalidRequest(fault, code="name_invalid")


def outbox_full(waiting: int, most: int) -> OutboxFull:
    """Why no more bytes may wait to be sent."""
    return OutboxFull(f"{waiting} bytes wait to be sent, the limit is {most}; is the server away?")
