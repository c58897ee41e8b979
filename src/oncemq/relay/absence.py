"""A database that failed: away for now, which waiting mends, or unusable, which a person mends.

Where it cannot be told, the database counts as away: a relay that waits says why in its log.
"""

from oncemq.errors import OnceMQError

_LIBRARIES = ("sqlite3", "psycopg", "asyncpg", "sqlalchemy")
_AWAY = ("08", "53", "57")  # SQLSTATE: no connection, no room for one, being started or stopped
_REFUSALS = ("OperationalError", "ConnectionTimeout")
# libpq tells no SQLSTATE of a connection that was refused, only words. No waiting mends these.
_LASTING = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
)


def of_the_database(error: BaseException) -> bool:
    """Whether the database or the way to it failed, which time may mend."""
    if isinstance(error, OnceMQError):
        return False
    return _library(error) in _LIBRARIES or isinstance(error, OSError)


def is_away(error: BaseException) -> bool:
    """Whether the database is stopped, starting or full of connections, as far as can be told."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError):
            return True
        state = getattr(seen, "sqlstate", None)
        if isinstance(state, str):
            return state.startswith(_AWAY)
        if _library(seen) == "sqlite3":
            return "locked" in str(seen)
        if _library(seen) == "psycopg" and type(seen).__name__ in _REFUSALS:
            return not any(words in str(seen) for words in _LASTING)
        seen = getattr(seen, "orig", None) or seen.__cause__
    return False


def _library(error: BaseException) -> str:
    return type(error).__module__.split(".")[0]
