"""Which of its servers a client talks to, and whether that one is on the line.

Laws: another server is tried when this one does not come in time, does not answer, or is not the
leader (`session/leader_search` says which, and when); the one that answers is kept, for numbers and
cursors are compared anew on each change. Between a refusal and the next server nothing is sent.
"""

from oncemq.client.context import ClientContext
from oncemq.client.engine.line import ServerConnection
from oncemq.errors import ConfigError
from oncemq.protocol.names import Micros
from oncemq.protocol.replies import (
    LEADER_CHANGED,
    NOT_LEADER,
    RefusedReply,
    Reply,
    StatusReport,
)
from oncemq.session.inflight import InFlightRequest
from oncemq.session.leader_search import LONGEST_TRY, LeaderSearch

CONNECT_PATIENCE = LONGEST_TRY  # microseconds to wait for a connection, where there is no other


class CurrentServer:
    """The server of now: one that the client was given, or one that those named as leader."""

    def __init__(self, client: ClientContext, line: ServerConnection) -> None:
        self._client = client
        self._line = line
        self._search = LeaderSearch(client.settings.servers[0], client.settings.chance)
        self.is_connected = False
        self.is_silent = False  # its connection did not come in time
        self.has_answered = False  # since it was connected, as only a leader does
        self.deadline = Micros(0)  # until then a connection may come
        self.moves_at: Micros | None = None  # when another is asked instead
        self._is_refusing = False
        self._connect()

    @property
    def address(self) -> str:
        """Of the server that it talks to, or tries to."""
        return self._search.address

    @property
    def has_others(self) -> bool:
        """Whether there is another one to try."""
        servers = self._client.settings.servers
        return len(servers) > 1 or self.address not in servers

    @property
    def answer_micros(self) -> int:
        """How long a request may take on this connection until it counts as lost."""
        return self._search.answer_micros(self._client.settings.servers)

    @property
    def no_leader(self) -> str:
        """In words: who was asked since somebody said that it is not the leader; else empty."""
        search = self._search
        if not search.was_refused:
            return ""
        return ", ".join(f"{each} {outcome}" for each, outcome in search.outcomes.items())

    def next_look(self, due: Micros | None) -> Micros | None:
        """When to go on to another server, or to see whether this one came.

        Nothing can be sent until then: what is `due` earlier waits.
        """
        if self.moves_at is not None:
            return self.moves_at
        if self.has_others:
            return self.deadline
        return None if due is None else max(due, self.deadline)

    def hear(self, now: Micros) -> bool:
        """Take the news of the connection; whether it is a new one.

        Nobody there knows what was said on the one before, and nothing of that will be answered.
        """
        is_new, news = False, self._client.news
        while (connected := self._line.news()) is not None:
            is_new = is_new or (connected and not self.is_connected)
            news.linked(self.address, connected=connected)
            self.is_connected = connected
            self._wait_from(now)
        if is_new:
            self.has_answered, self._is_refusing, self.moves_at = False, False, None
        is_in_vain = self._line.is_in_vain and self.has_others
        self.is_silent = not self.is_connected and (is_in_vain or now > self.deadline)
        if self.is_silent:
            news.linked(self.address, connected=False)
            self._wait_from(now)
        return is_new

    def answered(self, reply: Reply) -> None:
        """It answers: it leads, unless it only said how it is itself."""
        if not isinstance(reply, StatusReport) and not self._is_refusing:
            self.has_answered, self.moves_at = True, None
            self._search.answered()

    def is_about_leading(self, request: InFlightRequest, refusal: RefusedReply) -> bool:
        """Whether a refusal says who leads, or since when: then the request is sent again."""
        if refusal.code == LEADER_CHANGED:
            self._client.leader_epoch = refusal.leader_epoch
            self.answered(refusal)
            request.due, request.attempts = Micros(0), 0
        elif refusal.code == NOT_LEADER and request.attempts and self.is_connected:
            self._refused(refusal)  # else it is to an earlier copy
        return refusal.code in (LEADER_CHANGED, NOT_LEADER)

    def _refused(self, reply: RefusedReply) -> None:
        """It is not the leader."""
        search, now = self._search, self._client.now()
        self._client.news.not_leading(self.address, reply.leader, reply.leader_epoch)
        at = search.refused(reply, self._client.settings.servers, now)
        # Of several refusals the first says when; one that names a leader comes before it.
        self.has_answered, self._is_refusing = False, True
        self.moves_at = at if self.moves_at is None else min(at, self.moves_at)

    def is_of_no_use(self, now: Micros) -> None:
        """It is silent, or answers nothing: another is tried."""
        if self.moves_at is None:
            outcome = "gave no answer" if self.is_connected else "gave no connection"
            self.moves_at = self._search.failed(outcome, self._client.settings.servers, now)

    def moved_on(self, now: Micros) -> bool:
        """Talk to the next one from now on, if it is time for that."""
        if self.moves_at is None or now < self.moves_at:
            return False
        self._search.go_on(self._client.settings.servers, now)
        self._connect()
        return True

    def _connect(self) -> None:
        now, search = self._client.now(), self._search
        self._client.address = self.address
        self.is_connected = self.is_silent = self.has_answered = self._is_refusing = False
        self.moves_at = None
        self._wait_from(now)
        try:
            self._line.connect(self.address)
        except ConfigError:
            if not search.is_named:
                raise
            self.moves_at = search.failed("is no address", self._client.settings.servers, now)

    def _wait_from(self, now: Micros) -> None:
        self.deadline = Micros(now + self._search.connect_micros(self._client.settings.servers))
