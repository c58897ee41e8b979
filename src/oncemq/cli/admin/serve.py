"""`once serve`."""

from typing import TYPE_CHECKING

from oncemq.cli.terminal.command import command, setting, settings
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Corrupt

if TYPE_CHECKING:
    from oncemq.assembly import Server
    from oncemq.cluster.cluster_server import ClusterServer


@settings(
    setting("data", "DIR", "Where the log lives; ~/.local/share/oncemq by default."),
    setting("bind", "ADDRESS", "Listen here; tcp://127.0.0.1:5556 by default."),
    setting("feed", "ADDRESS", "Push to listeners from here; auto, or none for no live feed."),
    setting("cluster", "NAME", "Be a server of this cluster; alone by default."),
    setting("etcd", "ADDRESS[,…]", "Where the cluster's etcd is: http://host:2379."),
    setting("server_id", "ID", "This server's name in the cluster, for good."),
    setting("advertise", "ADDRESS", "Where others reach this server; as --bind by default."),
    setting("retry", "SECONDS", "Tell a listener again what it has not settled; 3s by default."),
    setting(
        "sync",
        "always|interval:MS",
        "Sync each put before its answer (the default), or every so many milliseconds: faster, "
        "and a power cut may take the last of them.",
    ),
    setting("segment_bytes", "SIZE", "Size of one file of the log; 64MiB by default."),
    setting("disk_max", "SIZE", "Refuse puts beyond this; none by default."),
    setting("message_max", "SIZE", "Refuse larger messages; 16MiB by default."),
    setting("idempotency_ttl", "TIME", "Remember idempotency keys this long; 7d by default."),
    setting("stage_ttl", "TIME", "Give stages up that are silent for so long; 1d by default."),
    setting("log_level", "LEVEL", "debug, info (the default), warning or error."),
    setting("log_format", "FORMAT", "text (the default) or json."),
)
@command("serve")
def serve(session: CommandSession) -> None:
    """Run a server in the foreground, until Ctrl-C or SIGTERM.

    Prints one line on stdout when it is ready, and logs to stderr. When told to stop, it first
    ends the work it has accepted. Exit code 7: the data directory is damaged, full or in use.
    In a cluster it then follows or leads, as `once cluster status` shows; told to stop, a leader
    gives the lead away first.
    """
    from oncemq.assembly import serve as run
    from oncemq.cli.terminal import logs
    from oncemq.cli.terminal.failures import naming_repair

    config = session.config
    logs.start(config.log_level, config.log_format)

    def ready(server: "Server | ClusterServer") -> None:
        part = f", as {config.server_id} of the cluster {config.cluster}" if config.cluster else ""
        of_cluster = {"cluster": config.cluster, "server_id": config.server_id} if part else {}
        session.answer(
            {
                "ready": True,
                "address": server.address,
                **of_cluster,
                "feed": server.feed or None,
                "data": str(config.data),
                "sync": config.sync,
                "recovered": server.recovered,
                "recovery_seconds": round(server.recovery_seconds, 3),
            },
            f"once serve: ready at {server.address}{part}, data in {config.data}, "
            f"sync {config.sync}, "
            f"recovered {server.recovered} records in {server.recovery_seconds:.2f} s",
        )
        session.flush()

    try:
        run(config, ready=ready)
    except Corrupt as error:
        raise naming_repair(error, str(config.data)) from error
    if session.json:
        session.emit({"stopped": True})
