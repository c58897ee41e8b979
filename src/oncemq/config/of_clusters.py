"""The settings of a server of a cluster: how their texts are read, and what must be given."""

import re
from typing import TYPE_CHECKING

from oncemq.errors import ConfigError
from oncemq.transport.connecting.addresses import server_address

if TYPE_CHECKING:
    from oncemq.config import Config

_ETCD = re.compile(r"https?://[^/\s]+:\d{1,5}")
_EVERYWHERE = ("//0.0.0.0:", "//*:", "//[::]:")  # an address to listen on, and not to connect to


def etcd_addresses(text: str) -> tuple[str, ...]:
    """Members of etcd, with commas between them."""
    found = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    addresses = tuple(each if "://" in each else f"http://{each}" for each in found)
    if not addresses or not all(_ETCD.fullmatch(each) for each in addresses):
        raise ConfigError(f"{text!r} is not where etcd is; write it like http://host:2379,…")
    return addresses


def part_of_key(text: str) -> str:
    """The name of a cluster, or of a server in it."""
    from oncemq.coordination.values import name_fault

    if fault := name_fault(text, what="the name"):
        raise ConfigError(fault)
    return text


def check_cluster(config: "Config") -> None:
    """What a server of a cluster must be told before it starts."""
    if config.cluster is None:
        for name in ("server_id", "advertise"):
            if getattr(config, name) is not None:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} is for a server of a cluster: give --cluster, too")
        return
    if config.server_id is None or not config.etcd:
        raise ConfigError(
            f"a server of the cluster {config.cluster} needs --server-id, its name for good, and "
            "--etcd, through which the cluster agrees: "
            "once serve --cluster NAME --etcd ADDRESS,… --server-id ID"
        )
    if config.sync_ms:
        raise ConfigError(
            "--sync interval:MS is for a server that is alone: replicas say what their disks have, "
            "and the others count on it. Leave --sync out, or write --sync always"
        )
    told = config.advertise or config.bind
    if any(each in told for each in _EVERYWHERE):
        raise ConfigError(
            f"nobody can connect to {told}: say with --advertise where others reach this server"
        )
    if config.advertise is not None:
        server_address(config.advertise)
