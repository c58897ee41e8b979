"""`once topic show|create|config|delete`."""

import sys

import click

from oncemq.cli.admin.subscriptions import HEADS, as_object, row_of
from oncemq.cli.admin.topic_list import as_object as topic_object
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import OnceGroup, command, topic_names
from oncemq.cli.terminal.retention import HELP, retention_of, text_of
from oncemq.cli.terminal.session import CommandSession
from oncemq.errors import Refused
from oncemq.protocol.records import Retention

named = click.argument("topic", shell_complete=topic_names)


@click.group("topic", cls=OnceGroup)
def topic() -> None:
    """Show, create, configure or delete a topic."""


@command("show")
@named
def show(session: CommandSession, topic: str) -> None:
    """Show TOPIC, its subscriptions, and why its messages are kept."""
    with session.visitor() as client:
        shown = client.topic(topic)
    info = shown.topic
    if session.json:
        return session.emit(
            topic_object(info)
            | {
                "kept_because": shown.kept_because,
                "subscribed": [as_object(each) for each in shown.subscriptions],
            }
        )
    session.say(
        output.pairs(
            [
                ("topic", info.name),
                ("messages", info.end - info.low),
                ("offsets", f"low {info.low:,}, end {info.end:,}"),
                *(("lost", f"{first:,} up to {end:,}, by agreement") for first, end in info.lost),
                ("retain", text_of(info.retention)),
                ("kept because", shown.kept_because),
                ("stored", output.about(info.stored_bytes)),
                ("producers", info.producers),
                ("idempotency keys", info.idempotency_keys),
                ("created", output.moment(info.created)),
            ]
        )
    )
    if shown.subscriptions:
        session.say("\n" + output.table(HEADS, [row_of(each) for each in shown.subscriptions]))
    return None


@command("create")
@named
@click.option("--retain", default="none", metavar="WHAT", callback=retention_of, help=HELP)
def create(session: CommandSession, topic: str, retain: Retention) -> None:
    """Create TOPIC. Exit code 1: it was there already, and is unchanged."""
    with session.visitor() as client:
        made = client.create_topic(topic, retain)
    if not made:
        raise Refused(
            f"topic '{topic}' is there already; `once topic config` changes what it retains",
            code="already_there",
        )
    session.answer(_settled(topic, retain), f"created '{topic}', {_words(retain)}")


@command("config")
@named
@click.option("--retain", required=True, metavar="WHAT", callback=retention_of, help=HELP)
def config(session: CommandSession, topic: str, retain: Retention) -> None:
    """Change what TOPIC retains."""
    with session.visitor() as client:
        changed = client.configure_topic(topic, retain)
    text = f"'{topic}' now {_words(retain)}" if changed else f"'{topic}' {_words(retain)} already"
    session.answer(_settled(topic, retain) | {"changed": changed}, text)


@command("delete")
@named
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(session: CommandSession, topic: str, yes: bool) -> None:
    """Delete TOPIC with its messages and its subscriptions, for good."""
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(f"deleting '{topic}' cannot be undone; say --yes to do it")
        question = f"Delete '{topic}' with its messages and subscriptions, for good?"
        click.confirm(question, abort=True, err=True)
    with session.visitor() as client:
        client.delete_topic(topic)
    session.answer({"topic": topic, "deleted": True}, f"deleted '{topic}'")


def _settled(topic: str, retain: Retention) -> dict[str, object]:
    return {"topic": topic, "retain": text_of(retain)}


def _words(retain: Retention) -> str:
    return f"retains {text_of(retain)}" if retain.keeps else "retains nothing that was settled"


for _command in (show, create, config, delete):
    topic.add_command(_command)
