"""What a topic retains, as people write it: `7d`, `10GiB`, `7d,10GiB`, `forever`, `none`."""

import click

from oncemq.config.quantities import format_duration, format_size, parse_duration, parse_size
from oncemq.errors import ConfigError
from oncemq.protocol.records import Retention

HELP = "How long messages stay, read or not: 7d, 10GiB, both as 7d,10GiB, forever, or none."


def text_of(retention: Retention) -> str:
    """The text that `retention_of` reads back as this."""
    if retention.forever:
        return "forever"
    parts = [
        *([format_duration(retention.keep_ms)] if retention.keep_ms else []),
        *([format_size(retention.keep_bytes)] if retention.keep_bytes else []),
    ]
    return ",".join(parts) or "none"


def retention_of(_ctx: click.Context, _param: click.Parameter, text: str) -> Retention:
    """Read the text of `--retain`."""
    words = [word.strip().lower() for word in text.split(",")]
    if words == ["none"]:
        return Retention()
    if words == ["forever"]:
        return Retention(forever=True)
    times = [word for word in words if word[-1:] not in ("b", "")]
    sizes = [word for word in words if word[-1:] == "b"]
    try:
        kept = Retention(
            keep_ms=sum(map(parse_duration, times)), keep_bytes=sum(map(parse_size, sizes))
        )
    except ConfigError as error:
        raise click.BadParameter(error.detail) from None
    bare = any(word.isdecimal() for word in words)  # 7 what?
    if bare or not kept.keeps or len(times) > 1 or len(sizes) > 1 or "" in words:
        raise click.BadParameter(
            f"{text!r} does not say what to retain; write 7d, 10GiB, 7d,10GiB, forever or none"
        )
    return kept
