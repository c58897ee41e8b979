"""The iterator of `Client.listen`: a generator, which Python closes as soon as nobody has it."""

from collections.abc import Callable, Generator

from oncemq.client.values import Message

Owner = Callable[[], object]  # None once nobody has it


def listener(begin: Callable[[Owner | None], Generator[Message]]) -> Generator[Message]:
    """Messages as they come; no owner, for nobody needs to ask whether there still is one."""
    return begin(None)
