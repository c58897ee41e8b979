"""A listener that misbehaves on purpose: a test of the server, and of what reads its output.

It stalls, crashes and starts again, leaves a topic and joins it again, at random, from a seed that
it prints. Laws: what it crashes on was not written, so it comes again and is written once; what is
put while it is not subscribed is not for it, and everything else is written once, in order.
"""

import os
import random
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from oncemq.cli.terminal import message, output
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq import Client, Message

CALM, YELLOW, RED, BLUE = 0.96, 33, 31, 36
STALL_SECONDS = 1.0
AWAY_SECONDS = 0.5


class ListenerChaos:
    """One life of the listener; a crash begins the next."""

    def __init__(self, session: CommandSession, topics: tuple[str, ...], seed: int | None) -> None:
        self._session = session
        self._topics = topics
        self._seed = random.randrange(1 << 32) if seed is None else seed
        self._draw = random.Random(self._seed)

    def run(self) -> None:
        """Until interrupted."""
        self._say(BLUE, f"chaos with --seed {self._seed}")
        with self._session.client() as client:
            for topic in self._topics:
                client.subscribe(topic)
            while True:
                self._move(client, self._listen(client))

    def _listen(self, client: "Client") -> str:
        """Until it is time to leave a topic; which."""
        leaving: str | None = None
        for each in client.listen(*self._topics):
            if leaving is not None:
                return leaving  # only now: asking for this one has settled the one before
            self._maybe_misbehave(each)
            message.show(self._session, each)
            sys.stdout.flush()
            if self._draw.random() > CALM:
                leaving = self._draw.choice(self._topics)
        raise AssertionError("listening has no end")

    def _maybe_misbehave(self, each: "Message") -> None:
        drawn = self._draw.random()
        if drawn < CALM:
            return
        if drawn < (1 + CALM) / 2:
            seconds = self._draw.uniform(0.1, STALL_SECONDS)
            self._say(YELLOW, f"stalls for {seconds:.1f} s at {each.id}")
            time.sleep(seconds)
        else:
            self._crash(each)

    def _crash(self, each: "Message") -> NoReturn:
        """No goodbye, nothing closed or settled: another process stands where this one was."""
        self._say(RED, f"crashes at {each.id} and starts again")
        words = [word for word in sys.argv[1:] if not word.startswith("--seed")]
        if "--seed" in sys.argv:
            words.remove(sys.argv[sys.argv.index("--seed") + 1])
        command = [sys.executable, "-m", "oncemq", *words, "--seed", str(self._seed + 1)]
        os.execv(sys.executable, command)

    def _move(self, client: "Client", topic: str) -> None:
        seconds = self._draw.uniform(0, AWAY_SECONDS)
        self._say(YELLOW, f"unsubscribes from {topic} for {seconds:.1f} s")
        client.unsubscribe(topic)
        time.sleep(seconds)
        client.subscribe(topic)
        self._say(BLUE, f"is subscribed to {topic} again")

    def _say(self, colour: int, what: str) -> None:
        self._session.note(output.painted(f"{self._session.client_id} {what}", sys.stderr, colour))
