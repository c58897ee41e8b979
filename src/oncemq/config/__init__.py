"""The settings: one frozen `Config`, and where each of its values comes from.

Law: a flag beats an `ONCEMQ_*` variable, which beats the TOML file, which beats the default.
A setting that nobody knows is an error that names the nearest one: a misspelt setting that is
passed over in silence is found weeks later, in production.

Every value is text first (flag, variable and TOML alike) and goes through the one parser of
its setting, so that `10GiB` and `500ms` mean the same wherever they are written.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from oncemq.client.state.paths import BUSY_MICROS
from oncemq.config.of_clusters import etcd_addresses, part_of_key
from oncemq.config.quantities import MS, format_size, parse_duration, parse_size
from oncemq.errors import ConfigError

DEFAULT = "default"
SERVER = "tcp://127.0.0.1:5556"
PREFIX = "ONCEMQ_"
FILE_VARIABLE = "ONCEMQ_CONFIG"
NO_SETTINGS = (FILE_VARIABLE, BUSY_MICROS)
FILE_NAME = "oncemq.toml"

_ADDRESS = re.compile(r"(tcp)://(.+):(\d{1,5}|\*)|(ipc|inproc)://(.+)")

SYNC_MS_MAX = 60_000
COUNT_MAX = 1 << 40

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


def _data_home() -> Path:
    return default_data(os.environ)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, ready to use. `origin` says where a value comes from."""

    server: tuple[str, ...] = (SERVER,)
    id: str | None = None  # None: anonymous, or the command line's USER@HOST
    state: Path | None = None  # None: the client's own default
    timeout: float = 10.0  # seconds
    data: Path = msgspec.field(default_factory=_data_home)
    bind: str = SERVER
    feed: str = "auto"  # an address; auto: beside `bind`, in a cluster any port; none: no feed
    cluster: str | None = None  # its name; None: a server that is alone
    etcd: tuple[str, ...] = ()  # of the cluster
    etcd_program: Path | None = None  # what `once cluster dev` starts; None: on PATH
    server_id: str | None = None  # of this server, in the cluster
    advertise: str | None = None  # None: what `bind` says
    retry: float = 3.0  # seconds
    sync: str = "always"  # or interval:MS
    segment_bytes: int = 64 << 20
    disk_max: int | None = None  # None: as much as the disk has
    message_max: int = 16 << 20
    batch_max: int = 64 << 20
    idempotency_ttl: float = 7 * 86_400.0  # seconds
    idempotency_keys_max: int = 1_000_000  # of one topic
    stage_ttl: float = 86_400.0  # seconds
    stages_max: int = 1_000_000
    stage_bytes_max: int = 64 << 30
    clients_max: int = 1_000_000
    producers_max: int = 1_000_000  # of one topic
    connections_max: int | None = None  # None: as the limit of open files leaves
    handshakes_max: int = 4_096
    handshake_time: float = 2.0  # seconds
    unfinished_max: int = 512 << 20
    unfinished_time: float = 30.0  # seconds
    owed_pause: int = 4 << 20
    owed_max: int = 256 << 20
    owed_total_max: int = 1 << 30
    owed_time: float = 30.0  # seconds
    feed_owed_max: int = 4 << 20
    subjects_max: int = 16_384
    subjects_total_max: int = 500_000
    request_entries_max: int = 50_000
    gathered_max: int = 128 << 20
    held_answers_max: int = 100_000
    turn_requests: int = 256
    turn_bytes: int = 16 << 20
    turn_micros: int = 250
    files_kept: int = 48
    log_level: str = "info"
    log_format: str = "text"
    origins: dict[str, str] = {}

    @property
    def sync_ms(self) -> int:
        """0: each put is synced before its answer. Else: synced at least this often."""
        return 0 if self.sync == "always" else int(self.sync.removeprefix("interval:"))

    def origin(self, name: str) -> str:
        """Where the value of setting `name` comes from, in words."""
        return self.origins.get(name, DEFAULT)


# ------------------------------------------------------------------ one parser per setting


def _positive_size(text: str) -> int:
    if (size := parse_size(text)) < 1:
        raise ConfigError(f"{text!r} leaves no room; give at least 1 byte")
    return size


def _size_or_none(text: str) -> int | None:
    return None if text.strip().lower() == "none" else _positive_size(text)


def _at_least_a_day(text: str) -> float:
    if (ms := parse_duration(text)) < MS["d"]:
        raise ConfigError(f"{text!r} is too short to be of use; give at least a day: 1d")
    return ms / 1000


def _at_least_a_minute(text: str) -> float:
    if (ms := parse_duration(text)) < MS["m"]:
        raise ConfigError(f"{text!r} is shorter than a pause of a publisher; give at least 1m")
    return ms / 1000


def _count(text: str) -> int:
    digits = text.strip().replace("_", "").replace(",", "")
    if not digits.isdecimal() or not 1 <= int(digits) <= COUNT_MAX:
        raise ConfigError(f"{text!r} is not a number from 1 to {COUNT_MAX}")
    return int(digits)


def _count_or_none(text: str) -> int | None:
    return None if text.strip().lower() == "none" else _count(text)


def _entries(text: str) -> int:
    from oncemq.protocol.structs import ENTRIES_MAX

    if (count := _count(text)) > ENTRIES_MAX:
        raise ConfigError(f"{text!r} is too many: no server takes more than {ENTRIES_MAX}")
    return count


def _seconds(text: str) -> float:
    if (ms := parse_duration(text)) < 1:
        raise ConfigError(f"{text!r} leaves no time for an answer; give at least 1ms")
    return ms / 1000


def _address(text: str) -> str:
    address = text.strip()
    if "://" not in address:
        address = f"tcp://{address}"
    found = _ADDRESS.fullmatch(address)
    port = found[3] if found else None
    if found is None or (port and port.isdecimal() and int(port) > 65535):
        host = address.removeprefix("tcp://").partition(":")[0].strip("/") or "127.0.0.1"
        raise ConfigError(f"{text!r} is not an address; write it like tcp://{host}:5556")
    return address


def _feed(text: str) -> str:
    choice = text.strip().lower()
    return choice if choice in ("auto", "none") else _address(text)


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(_address(part) for part in text.split(",") if part.strip())
    if not addresses:
        raise ConfigError(f"no address is given; write it like {SERVER}")
    if any(address.endswith(":*") for address in addresses):
        raise ConfigError(f"{text!r} has no port to connect to; `*` is for `once serve --bind`")
    return addresses


def _client_id(text: str) -> str:
    from oncemq.protocol.names import is_system, name_fault

    if fault := name_fault(text, what="client id"):
        raise ConfigError(fault)
    if is_system(text):
        raise ConfigError(f"the client id {text!r} starts with '_', which is the system's")
    return text


def _sync(text: str) -> str:
    mode, _, interval = text.strip().lower().partition(":")
    if mode == "always" and not interval:
        return "always"
    if mode != "interval" or not interval:
        raise ConfigError(f"{text!r} is not a way to sync; write always, or interval:100 (ms)")
    ms = int(interval) if interval.isdecimal() else parse_duration(interval)
    if not 1 <= ms <= SYNC_MS_MAX:
        raise ConfigError(f"{text!r} is out of range; sync every 1 to {SYNC_MS_MAX} ms")
    return f"interval:{ms}"


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if (choice := text.strip().lower()) not in choices:
            raise ConfigError(f"{text!r} is not known; choose from {', '.join(choices)}")
        return choice

    return parse


def _path(text: str) -> Path:
    if "\0" in text:
        raise ConfigError(f"{text!r} is not a path: it has a NUL in it")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{text!r} has no home directory to stand for `~`") from error
    except ValueError as error:  # `~` and a name that cannot be one
        raise ConfigError(f"{text!r} is not a path: {error}") from error


class Setting(NamedTuple):
    """One setting: how its text is read, and what it is for."""

    parse: Callable[[str], object]
    about: str


SETTINGS: dict[str, Setting] = {
    "server": Setting(_addresses, "addresses of the server, tried in turn"),
    "id": Setting(_client_id, "the client's name, which owns subscriptions and an outbox"),
    "state": Setting(_path, "directory of the client's state"),
    "timeout": Setting(_seconds, "how long a command waits for an answer"),
    "data": Setting(_path, "directory of the server's log"),
    "bind": Setting(_address, "address the server listens on"),
    "feed": Setting(_feed, "address of the live feed; auto: beside bind (cluster: any); or none"),
    "cluster": Setting(part_of_key, "the cluster that a server is of"),
    "etcd": Setting(etcd_addresses, "addresses of the etcd that the cluster agrees through"),
    "etcd_program": Setting(_path, "the program etcd, for `once cluster dev`"),
    "server_id": Setting(part_of_key, "the server's name in its cluster, for good"),
    "advertise": Setting(_address, "where others reach a server of a cluster; else as bind"),
    "retry": Setting(_seconds, "until a listener is told again what it has not settled"),
    "sync": Setting(_sync, "always, or interval:MS"),
    "segment_bytes": Setting(_positive_size, "size of one file of the log"),
    "disk_max": Setting(_size_or_none, "most bytes the log may take, or none"),
    "message_max": Setting(_positive_size, "most bytes of one message"),
    "batch_max": Setting(_positive_size, "most bytes of one batch"),
    "idempotency_ttl": Setting(_at_least_a_day, "how long an idempotency key is remembered"),
    "idempotency_keys_max": Setting(_count, "most idempotency keys that a topic remembers"),
    "stage_ttl": Setting(_at_least_a_minute, "how long an open stage may be silent"),
    "stages_max": Setting(_count, "most open stages"),
    "stage_bytes_max": Setting(_positive_size, "most bytes of all open stages"),
    "clients_max": Setting(_count, "most client ids"),
    "producers_max": Setting(_count, "most producers that a topic remembers"),
    "connections_max": Setting(_count_or_none, "most connections, or none: as files allow"),
    "handshakes_max": Setting(_count, "most connections that have not shaken hands yet"),
    "handshake_time": Setting(_seconds, "how long a handshake may take"),
    "unfinished_max": Setting(_positive_size, "most bytes of messages that did not come whole"),
    "unfinished_time": Setting(_seconds, "how long a message may come slower than 1 KiB a second"),
    "owed_pause": Setting(_positive_size, "unread replies over which a peer is not heard"),
    "owed_max": Setting(_positive_size, "most bytes of replies that a peer leaves unread"),
    "owed_total_max": Setting(_positive_size, "most bytes of unread replies of all peers"),
    "owed_time": Setting(_seconds, "how long a peer may read nothing of its replies"),
    "feed_owed_max": Setting(_positive_size, "most bytes kept for a listener of the live feed"),
    "subjects_max": Setting(_count, "most topics that a peer listens to on the live feed"),
    "subjects_total_max": Setting(_count, "most topics of all listeners, each counted for itself"),
    "request_entries_max": Setting(_entries, "most entries of a list in a request"),
    "gathered_max": Setting(_positive_size, "most bytes that wait for a slow disk"),
    "held_answers_max": Setting(_count, "most answers that wait for a slow disk"),
    "turn_requests": Setting(_count, "most requests taken before others have their turn"),
    "turn_bytes": Setting(_positive_size, "most bytes of them"),
    "turn_micros": Setting(_count, "most microseconds that they take"),
    "files_kept": Setting(_count, "open files that are no connections: the log's and others"),
    "log_level": Setting(_one_of(*LOG_LEVELS), ", ".join(LOG_LEVELS)),
    "log_format": Setting(_one_of(*LOG_FORMATS), ", ".join(LOG_FORMATS)),
}

PATHS = ("state", "data", "etcd_program")
LISTS = ("server", "etcd")
SIZES = {name for name, each in SETTINGS.items() if each.parse in (_positive_size, _size_or_none)}


# ------------------------------------------------------------------ from everywhere, in order


def load(
    flags: Mapping[str, str | None] | None = None,
    *,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The settings as flags, environment and file give them. `file` is the flag `--config`."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {"data": default_data(environ)}
    origins: dict[str, str] = {}
    given = [*_from_file(file, environ), *_from_environment(environ), *_from_flags(flags or {})]
    for name, text, origin in given:  # the weakest first, so the strongest stays
        try:
            values[name] = SETTINGS[name].parse(text)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error.detail}") from error
        origins[name] = origin
    config = Config(**values, origins=origins)
    if config.message_max > config.batch_max:
        sizes = f"{format_size(config.message_max)}, more than batch_max"
        raise ConfigError(f"message_max is {sizes} ({format_size(config.batch_max)}); raise that")
    return config


def default_data(environ: Mapping[str, str]) -> Path:
    """`$XDG_DATA_HOME/oncemq`, else `~/.local/share/oncemq`."""
    return _xdg(environ, "XDG_DATA_HOME", ".local/share") / "oncemq"


Given = tuple[str, str, str]  # setting, text, origin


def _from_flags(flags: Mapping[str, str | None]) -> list[Given]:
    return [
        (name, text, f"flag --{name.replace('_', '-')}")
        for name, text in flags.items()
        if text is not None
    ]


def _from_environment(environ: Mapping[str, str]) -> list[Given]:
    variables = {PREFIX + name.upper(): name for name in SETTINGS}
    given: list[Given] = []
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in NO_SETTINGS or not text:
            continue  # an empty variable is an unset one, as everywhere
        if variable not in variables:
            hint = nearest(variable, [*variables, *NO_SETTINGS])
            raise ConfigError(f"unknown variable {variable}; {hint}")
        given.append((variables[variable], text, f"variable {variable}"))
    return given


def _from_file(file: str | None, environ: Mapping[str, str]) -> list[Given]:
    path = _file(file, environ)
    if path is None:
        return []
    import tomllib

    try:
        with open(path, "rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the settings in {path}: {error.strerror}") from error
    except ValueError as error:  # a TOML or a UTF-8 error: both are ValueErrors
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return [(name, _text(path, name, value), f"file {path}") for name, value in table.items()]


def _file(file: str | None, environ: Mapping[str, str]) -> Path | None:
    """The file that was named, which must be there; else the first usual one that is."""
    if named := file or environ.get(FILE_VARIABLE):
        return _path(named)
    usual = (Path(FILE_NAME), _xdg(environ, "XDG_CONFIG_HOME", ".config") / "oncemq/config.toml")
    path = next((path for path in usual if path.is_file()), None)
    if path is not None and path == Path(FILE_NAME):
        _check_owner(path)
    return path


def _check_owner(path: Path) -> None:
    """Whoever can write the settings of a directory decides where messages go: us, or nobody."""
    found = path.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o002:
        raise ConfigError(
            f"{path.absolute()} belongs to somebody else, or anyone may write to it, so it is not "
            f"obeyed; name it with --config {FILE_NAME} to use it, or change its owner and mode"
        )


def _text(path: Path, name: str, value: object) -> str:
    """The value as it would be written in a flag."""
    if name not in SETTINGS:
        raise ConfigError(f"unknown setting {name!r} in {path}; {nearest(name, list(SETTINGS))}")
    if isinstance(value, list) and name in LISTS:
        return ",".join(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{name} in {path} must be text or a number, not {value!r}")
    # A relative path in a file means beside that file, wherever the command is run from.
    return str(path.parent / _path(str(value))) if name in PATHS else str(value)


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    """A base directory. The XDG rules say to pass over one that is not absolute."""
    named = Path(environ.get(variable) or "")
    return named if named.is_absolute() else Path(environ.get("HOME") or _path("~")) / fallback


def nearest(name: str, known: list[str]) -> str:
    """`did you mean 'x'?`, or everything there is."""
    from difflib import get_close_matches  # 5 ms that only a mistake has to pay

    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
