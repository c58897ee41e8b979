"""What a server of a cluster must be told before it starts."""

import pytest

from oncemq.config import Config
from oncemq.config.of_clusters import check_cluster
from oncemq.errors import ConfigError

WHOLE = Config(cluster="one", server_id="a", etcd=("http://e:2379",), bind="tcp://10.0.0.1:5556")


def with_(**settings: object) -> Config:
    """A cluster's server with these settings."""
    given = {"cluster": "one", "server_id": "a", "etcd": ("http://e:2379",), "bind": WHOLE.bind}
    return Config(**{**given, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        WHOLE,
        with_(bind="tcp://127.0.0.1:*"),
        with_(bind="tcp://*:5556", advertise="tcp://[fd00::1]:5556"),
        with_(bind="tcp://0.0.0.0:5556", advertise="tcp://a.example:5556"),
    ],
)
def test_these_may_start(config: Config) -> None:
    check_cluster(config)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (Config(server_id="a"), "--server-id is for a server of a cluster"),
        (Config(advertise="tcp://a:1"), "--advertise is for a server of a cluster"),
        (with_(server_id=None), "needs --server-id"),
        (with_(etcd=()), "needs --server-id"),
        (with_(sync="interval:100"), "--sync interval:MS is for a server that is alone"),
        (with_(bind="tcp://*:5556"), "say with --advertise where"),
        (with_(advertise="tcp://[::]:5556"), "say with --advertise where"),
        (with_(advertise="tcp://fd00::1:5556"), "put in brackets"),
        (with_(advertise="tcp://a.example:*"), "its port is not one"),
        (with_(advertise="inproc://a"), "neither tcp:// nor ipc://"),
    ],
)
def test_these_are_told_what_is_wrong(config: Config, why: str) -> None:
    with pytest.raises(ConfigError) as told:
        check_cluster(config)
    assert why in str(told.value)
