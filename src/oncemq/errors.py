"""The exceptions a user of OnceMQ may catch.

OnceMQError
├── Refused             the server said no: `.code` names the rule, `.detail` the way out
│   ├── NotSubscribed   get, settle or consume without a subscription
│   ├── NoSuchTopic     the topic named is not there
│   ├── Unwanted        nobody would get it, and it was required: nothing was stored
│   └── InvalidRequest  a name, a size, an offset or a frame outside the rules
├── Unreachable         no server answered in time; what was recorded goes out later
├── Fenced              a newer client with the same id took over
│   └── StaleState      the state directory is an old copy
├── HistoryLost         the server has lost what this client knows it had: a person must accept
├── Forked              the client belongs to the process that this one was forked from
├── OutboxFull          the limit of unsent puts is reached
├── StorageRefused      the disk is full, or what is on it cannot be trusted
│   ├── StorageUnreadable  the server's disk did not give what is stored; try again
│   ├── StorageFull     no room; nothing was stored
│   ├── StorageUnsure   the client's disk failed: nobody knows what it has before the next start
│   ├── Corrupt         a checksum, the chain or the order of the log does not hold
│   └── Locked          another process has this directory open
├── DatabaseRefused     the connection to your database cannot be used as it is
│   └── InboxGap        messages that it lacks are not kept any more
├── PortInUse           the address to listen on is taken
├── TooManyFiles        this process may open no more files; nothing was begun
└── ConfigError         a setting that cannot be used
"""


class OnceMQError(Exception):
    """Anything OnceMQ raises. `code` is stable, `detail` is for people."""

    code = "error"

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        if code is not None:
            self.code = code


class Refused(OnceMQError):
    """The server refused the request; nothing was changed by it."""

    code = "refused"


class NotSubscribed(Refused):
    """The client has no subscription on the topic."""

    code = "not_subscribed"


class NoSuchTopic(Refused):
    """The topic is not on this server."""

    code = "no_such_topic"


class Unwanted(Refused):
    """Nobody subscribes to the topic and it keeps nothing: what was required is not stored."""

    code = "unwanted"


class InvalidRequest(Refused):
    """The request breaks a rule that no retry will mend."""

    code = "invalid"


class Unreachable(OnceMQError):
    """No server answered before the deadline."""

    code = "unreachable"


class Fenced(OnceMQError):
    """A newer client with the same id took over; this one must stop."""

    code = "fenced"


class StaleState(Fenced):
    """The client's state is an older copy of what the server has seen."""

    code = "stale_state"


class HistoryLost(OnceMQError):
    """The server does not have what this client saw it have; it goes on once a person said so."""

    code = "history_lost"


class Forked(OnceMQError):
    """The client belongs to another process, from which this one was forked; it is closed here."""

    code = "forked"


class OutboxFull(OnceMQError):
    """Too many unsent puts wait on this client's disk."""

    code = "outbox_full"


class StorageRefused(OnceMQError):
    """The storage cannot take or give what was asked."""

    code = "storage_refused"


class StorageUnreadable(StorageRefused):
    """The server's disk failed to give what is stored; nothing was lost by that: try again."""

    code = "storage_unreadable"


class StorageFull(StorageRefused):
    """No room on the disk (or the set limit is reached); nothing was stored."""

    code = "storage_full"


class StorageUnsure(StorageRefused):
    """The disk of this client failed while it wrote; the next start finds out what it has.

    It sends the put that was recorded if the disk has it. Put again what must not be missing only
    under a key that makes it the same put (`idempotency_key`), or after that start looked at what
    is stored. Of messages that were being taken: they come again, or count as taken.
    """

    code = "storage_unsure"


class Corrupt(StorageRefused):
    """Stored bytes are not what was written."""

    code = "corrupt"


class Locked(StorageRefused):
    """Another process holds the directory."""

    code = "locked"


class DatabaseRefused(OnceMQError):
    """The user's own database, or the connection to it, cannot be used as it is."""

    code = "database_refused"


class InboxGap(DatabaseRefused):
    """The database lacks messages that are settled, and cannot be given them any more."""

    code = "inbox_gap"


class PortInUse(OnceMQError):
    """The address to listen on is taken."""

    code = "port_in_use"


class TooManyFiles(OnceMQError):
    """This process, or the whole machine, has as many open files as it may."""

    code = "too_many_files"


class ConfigError(OnceMQError):
    """A setting has a value that cannot be used."""

    code = "config"
