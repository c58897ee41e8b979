"""Damage to this server's copy of the log, from when it is met until a peer's copy is in its place.

How it works. What the copy holds the others in sync hold as well: so it is put aside as a whole, as
it is, and the directory begins anew, with another incarnation, and is filled by the leader.

    it does not open, or cannot be served    as soon as another directory in sync is known of
    it says that it lost what others have    as soon as a server in sync is there
    a leader meets it in a read              it gives the shard to a member in sync, and follows
    a follower has it                        once enough others are in sync that commits go on

Laws: nothing of the copy is removed before this server is in sync again with another one: until
then it may be the only one that is left, and a person can repair it. A copy that nobody else in
sync has is not put aside: then the server refuses, as one that is alone does.
"""

import logging
import shlex

from oncemq.cluster.agreement.shard_agreement import ShardAgreement
from oncemq.cluster.leading import Leading
from oncemq.cluster.replica_directory import Home, ReplicaDirectory
from oncemq.coordination.values import ShardReplicas
from oncemq.errors import Corrupt
from oncemq.protocol.names import ServerId
from oncemq.server.reader import damage_in
from oncemq.storage.log.set_aside import kept_aside, remove_some, set_aside

logger = logging.getLogger("oncemq.server")


class SetAside:
    """What a part ends for: the log is damaged, and others have it."""


class GoesBack:
    """What a part ends for: the shard went back in time, and this log is to say so as well."""


class Mending:
    """Of one server."""

    def __init__(self, me: ServerId, home: Home, agreement: ShardAgreement) -> None:
        self.why = ""  # what was met, while it is not put aside
        self._has_drained = False  # because of it: if the shard comes back, nobody else takes it
        self._opens = True
        self._me, self._home, self._agreement = me, home, agreement
        self._asides = kept_aside(home.disk, home.directory)

    @property
    def asides(self) -> list[str]:
        """The logs that were put aside, and are kept."""
        return self._asides

    @property
    def is_unusable(self) -> bool:
        """Whether the log cannot be opened, or not be served."""
        return bool(self.why) and not self._opens

    def met(self, why: str, *, opens: bool) -> None:
        """Damage was met; `opens`: the log can be followed with, and led in all other places."""
        if not self.why or (self._opens and not opens):
            logger.error("damaged directory=%s detail=%s", self._home.directory, why)
            self.why = self.why or why
        self._opens = self._opens and opens

    def met_at_opening(self, trouble: Corrupt | OSError) -> None:
        """The log does not open; what is no damage to it is raised again."""
        if not (why := damage_in(trouble)):
            raise trouble
        self.met(why, opens=False)

    def compares(self) -> SetAside | GoesBack | None:
        """What the log is to be closed for, where it went back in time alone, or the shard did."""
        if self._agreement.lacks_loss:
            return GoesBack()
        return SetAside() if self._may_give_up() else None

    def _may_give_up(self) -> bool:
        """Whether the log went back in time, the cluster's did not, and a server with that is here.

        It is whole, and may be all that is left: so it is not enough that another is known of.
        """
        agreement = self._agreement
        if self.why or not agreement.brings_loss:
            return False
        if not self._others(agreement.shard) & agreement.alive:
            return False
        self._opens = False
        self.why = "it was restored from a backup, or loss was accepted in it: others have it whole"
        return True

    @property
    def may_set_aside(self) -> bool:
        """Whether others have what this copy has, and go on without it where it still serves.

        Raises Corrupt where nobody has.
        """
        shard = self._agreement.shard
        if not self._agreement.has_snapshot:
            return False
        others = self._others(shard)
        if self._opens:
            alive = others & self._agreement.alive
            return shard is not None and len(alive) >= shard.min_in_sync
        if not others:
            place = shlex.quote(self._home.directory)
            raise Corrupt(
                f"{self.why}. No other server is in sync, so this is the only copy of what was "
                f"committed last, and it is left as it is: see `once repair --data {place}`; or "
                "start the servers that were in sync"
            )
        return True

    def set_aside(self) -> None:
        """The log is closed: the directory is without one from here on."""
        home = self._home
        lock = home.disk.lock(f"{home.directory}/lock")
        try:
            target = set_aside(home.disk, home.directory, self.why)
        finally:
            lock.release()
        logger.warning("log put aside directory=%s why=%s", target, self.why)
        self._asides = kept_aside(home.disk, home.directory)
        self.why, self._opens, self._has_drained = "", True, False

    def leads(self, leading: Leading) -> None:
        """This server leads: with damage, only until another can."""
        if leading.damage:
            self.met(leading.damage, opens=True)
        if self.why and not self._has_drained:
            self._has_drained = True
            leading.rules.drain()
        if leading.rules.is_serving:
            self._tidy()

    def follows(self, opened: ReplicaDirectory, *, is_whole: bool) -> bool:
        """This server follows; whether its log is to be put aside now."""
        if opened.log.reclaiming.damage:
            self.met(opened.log.reclaiming.damage, opens=True)
        if is_whole:
            self._tidy()
        return bool(self.why) and self.may_set_aside

    def _tidy(self) -> None:
        """In sync, what was put aside is not needed any more: it is removed a file at a time."""
        if self._asides and not self.why and remove_some(self._home.disk, self._asides[0]):
            logger.info("log that was put aside is removed directory=%s", self._asides.pop(0))

    @property
    def trouble(self) -> list[str]:
        """In words, with the way out."""
        found: list[str] = []
        if self.why:
            way_out = (
                "it is filled from a peer as soon as enough others are in sync"
                if self._opens
                else "it waits for etcd to say who else has it"
            )
            found.append(f"the log is damaged: {self.why}; {way_out}")
        if self._asides:
            found.append(
                f"the log before is kept in {self._asides[-1]} until this server is in sync again"
            )
        return found

    def _others(self, shard: ShardReplicas | None) -> frozenset[ServerId]:
        """Servers whose directories are known to be in sync."""
        if shard is None:
            return frozenset()
        return frozenset(shard.in_sync.keys() - shard.joining.keys() - {self._me})
