"""The coordinator: a value that changes by compare-and-swap, and its history for late readers."""

from typing import assert_never

import msgspec
from msgspec import structs

from oncemq.protocol.names import LeaderEpoch, ServerId
from oncemq.protocol.replicas.messages import Life
from oncemq.replication.view import (
    Ask,
    Elect,
    Expand,
    Propose,
    Resign,
    ShardView,
    Shrink,
    Withdraw,
)


class Claim(msgspec.Struct, frozen=True):
    """A server is about to open its directory once more."""

    incarnation: int
    openings: int  # so far
    nonce: int


class ModelCoordinator:
    """One shard's state, the servers' directories, and who has a lease."""

    def __init__(self, servers: tuple[ServerId, ...], min_in_sync: int) -> None:
        lives = {server: Life((1).to_bytes(4, "big"), 0) for server in servers}
        self.history = [
            ShardView(1, None, LeaderEpoch(0), servers, frozenset(servers), None, lives)
        ]
        self.leases: set[ServerId] = set()
        self._min_in_sync = min_in_sync
        self._directories: dict[ServerId, tuple[int, int, int]] = dict.fromkeys(servers, (1, 0, 0))
        self._given = 1  # incarnations

    @property
    def state(self) -> ShardView:
        return self.history[-1]

    def view(self, at: int = -1) -> ShardView:
        """How the shard is, or was; with each directory's count of openings as it is now."""
        state = self.history[at]
        lives = {
            server: Life(life.incarnation, self._directories[server][1])
            for server, life in state.lives.items()
            if self._directories[server][0].to_bytes(4, "big") == life.incarnation
        }
        return structs.replace(state, lives=lives)

    def claim(self, server: ServerId, claim: Claim) -> int | None:
        """Count one opening of this directory; None: it is older than what was opened before."""
        incarnation, openings, _ = self._directories[server]
        if claim.incarnation > incarnation:  # a directory that was never there before
            self._directories[server] = (claim.incarnation, claim.openings, 0)
        elif not self.knows(server, claim):
            return None
        elif openings > claim.openings:
            return openings  # the answer was lost
        self._directories[server] = (claim.incarnation, claim.openings + 1, claim.nonce)
        return claim.openings + 1

    def knows(self, server: ServerId, claim: Claim) -> bool:
        """Whether this directory is the one that was opened last, or is being opened."""
        incarnation, openings, nonce = self._directories[server]
        before = (claim.incarnation, claim.openings)
        return before == (incarnation, openings) or (*before, claim.nonce) == (
            incarnation,
            openings - 1,
            nonce,
        )

    def new_incarnation(self) -> int:
        """A number that no directory has had."""
        self._given += 1
        return self._given

    def decide(self, server: ServerId, ask: Ask, revision: int) -> bool:
        """Do it, if nothing changed since that revision; whether it was done."""
        state = self.state
        if state.revision != revision:
            return False
        after = self._after(server, ask, state)
        if after is None:
            return False
        self.history.append(structs.replace(after, revision=revision + 1))
        return True

    def _after(self, server: ServerId, ask: Ask, state: ShardView) -> ShardView | None:
        match ask:
            case Elect():
                return self._elected(ask, state)
            case Resign():
                if ask.to not in state.in_sync or ask.to not in self.leases:
                    return None
                return structs.replace(
                    state, leader=ask.to, leader_epoch=self._next(state), proposed=None
                )
            case Propose():
                if not self._is_here(ask.member, ask.incarnation):
                    return None
                return structs.replace(state, proposed=ask.member)
            case Withdraw():
                return structs.replace(state, proposed=None)
            case Expand():
                if not self._is_here(ask.member, ask.incarnation) or ask.member != state.proposed:
                    return None
                lives = {**state.lives, ask.member: Life(ask.incarnation, 0)}
                in_sync = state.in_sync | {ask.member}
                return structs.replace(state, proposed=None, in_sync=in_sync, lives=lives)
            case Shrink():
                return structs.replace(state, in_sync=state.in_sync - ask.members)
            case _:
                assert_never(ask)

    def _elected(self, ask: Elect, state: ShardView) -> ShardView | None:
        """The leader that is gone leaves the set where enough are left; else it stays for later."""
        gone = state.leader
        if gone in self.leases and gone != ask.server:
            return None
        left = state.in_sync - ({gone} - {ask.server})
        in_sync = left if len(left) >= self._min_in_sync else state.in_sync
        return structs.replace(
            state,
            leader=ask.server,
            leader_epoch=ask.leader_epoch,
            in_sync=in_sync,
            proposed=None,
        )

    def _next(self, state: ShardView) -> LeaderEpoch:
        return LeaderEpoch(state.leader_epoch + 1)

    def _is_here(self, member: ServerId, incarnation: bytes) -> bool:
        """Whether the server has this directory, and is alive."""
        known = self._directories[member][0].to_bytes(4, "big")
        return member in self.leases and known == incarnation
