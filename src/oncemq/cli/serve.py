"""`once serve`."""

import sys

import click

from oncemq.cli.command import command, setting, settings
from oncemq.cli.session import Session


@settings(
    setting("data", "DIR", "Where the log lives; ~/.local/share/oncemq by default."),
    setting("bind", "ADDRESS", "Listen here; tcp://127.0.0.1:5556 by default."),
    setting("feed", "ADDRESS", "Push to listeners from here; auto, or none for no live feed."),
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
def serve(session: Session) -> None:
    """Run a server in the foreground, until Ctrl-C or SIGTERM.

    Prints one line on stdout when it is ready, and logs to stderr. When told to stop, it first
    ends the work it has accepted. Exit code 7: the data directory is damaged, full or in use.
    """
    from oncemq.assembly import serve as run
    from oncemq.cli import logs

    config = session.config
    logs.start(config.log_level, config.log_format)

    def ready(text: str) -> None:
        session.answer({"ready": True, "detail": text}, f"once serve: {text}")
        sys.stdout.flush()

    if code := run(config, ready=ready):
        click.get_current_context().exit(code)
