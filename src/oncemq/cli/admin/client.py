"""`once client list|accept|forget|repair`."""

import sys
from typing import TYPE_CHECKING

import click

from oncemq.cli.admin.client_repair import repair
from oncemq.cli.terminal import output
from oncemq.cli.terminal.command import OnceGroup, command
from oncemq.cli.terminal.session import CommandSession

if TYPE_CHECKING:
    from oncemq.client.admin.accepting import Loss
    from oncemq.protocol.client_replies import ClientInfo
    from oncemq.protocol.replies import ClientList

PAGE = 1_000


@click.group("client", cls=OnceGroup)
def client() -> None:
    """List clients, accept what a server has lost, forget an id, or repair an outbox."""


@command("list")
def list_(session: CommandSession) -> None:
    """List the clients with state that the server has let in."""
    from oncemq.client.admin.one_question import asking
    from oncemq.protocol.client_requests import ListClients

    found: list[ClientInfo] = []
    with asking(list(session.config.server), session.config.timeout) as ask:
        more = True
        while more:
            page: ClientList = ask(ListClients(found[-1].client if found else "", PAGE))
            found += page.clients
            more = page.more
    rows = [(each.client, each.client_epoch, each.subscriptions) for each in found]
    heads = ("client", "starts", "subscriptions")
    session.listing([dict(zip(heads, row, strict=True)) for row in rows], heads, rows)
    if not found and not session.json:
        session.note("no client with an id was ever let in")


@command("accept")
@click.option("--yes", is_flag=True, help="Do not ask.")
def accept(session: CommandSession, yes: bool) -> None:
    """Let the client (--id) go on with a server that lost what the client knows.

    After loss was accepted at the server, or a backup restored, a client that knows more than the
    server has stops with `history_lost`. This shows which messages it took, and which of its puts
    have receipts, that the server does not have any more, and then moves the client's state to
    what the server has. The client must not run meanwhile.
    """
    import secrets

    from oncemq.client.admin.accepting import ClientFiles

    config = session.config
    if config.id is None:
        raise click.UsageError("name the client that is to go on: --id ID")
    with ClientFiles(config.id, config.state, secrets.token_bytes) as files:
        loss = files.look(list(config.server), config.timeout)
        if loss.is_nothing:
            text = f"{config.id} knows nothing that the server does not have; nothing was changed"
            session.answer(_object(config.id, loss, accepted=False), text)
            return
        lines = _lines(loss)
        if not yes:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                shown = "\n".join(lines)
                raise click.UsageError(f"{shown}\nthis cannot be undone; say --yes to accept it")
            for line in lines:
                session.note(line)
            question = f"Accept this loss, and let {config.id} go on with what the server has?"
            click.confirm(question, abort=True, err=True)
        files.accept(loss)
    text = "\n".join([*lines, f"accepted: {config.id} goes on with what the server has"])
    session.answer(_object(config.id, loss, accepted=True), text)


@command("forget")
@click.argument("id")
@click.option("--end-subscriptions", is_flag=True, help="Also when it still subscribes.")
def forget(session: CommandSession, id: str, end_subscriptions: bool) -> None:
    """Forget the client ID at the server: nobody uses it any more.

    Whoever comes with this id later is new. What topics remember of its puts stays, so that a
    copy of one that comes late is still recognized; that is deleted with the topic. Exit code 1:
    it subscribes, and nothing was changed.
    """
    from oncemq.client.admin.one_question import asking
    from oncemq.protocol.client_requests import ForgetClient
    from oncemq.protocol.names import ClientId

    with asking(list(session.config.server), session.config.timeout) as ask:
        changed = ask(ForgetClient(ClientId(id), end_subscriptions)).changed
    text = f"forgot client {id!r}" if changed else f"the server knows no client {id!r}"
    session.answer({"client": id, "forgotten": changed}, text)


def _lines(loss: "Loss") -> list[str]:
    from oncemq.client.lost_history import again_in_words, goes_on_at
    from oncemq.protocol.generations import in_words

    lines: list[str] = []
    if loss.is_another_log:
        lines.append("this server's log is another one than the client knows")
    elif loss.here.generation != loss.known.generation:
        known, here = in_words(loss.known.generation), in_words(loss.here.generation)
        lines.append(f"the server's log is at generation {here}, the client knows {known}")
    if loss.parted:
        lines.append(
            "what the client knows is of another branch of the log's history (another copy of the "
            "server's data was put back or restored): nobody can say up to where both agree"
        )
    if loss.last_epoch > loss.granted:
        begun = f"the client was granted epoch {loss.last_epoch}"
        lines.append(f"{begun}, and this server has granted {loss.granted or 'none'}")
    for lost in loss.cursors:
        place = goes_on_at(lost)
        if place is None:
            lines.append(f"{lost.topic}: the subscription, which stood at {lost.known}, is gone")
        elif lost.agreed < 0:
            lines.append(
                f"{lost.topic}: the client stands at {lost.known}, the topic ends at {lost.end}; "
                f"it goes on from {place}, where the server has it: messages may come again"
            )
        else:
            taken = output.counted(lost.known - place, "message")
            lines.append(
                f"{lost.topic}: {taken} taken at {place} to {lost.known - 1} are lost; it goes on "
                f"from {place}"
            )
    lines += map(again_in_words, loss.again)
    for numbers in loss.numbers:
        lost_puts = numbers.acknowledged - numbers.last_sequence
        if lost_puts > 0:
            count = output.counted(lost_puts, "put message")
            lines.append(f"{numbers.topic}: {count} with a receipt are lost")
        else:
            lines.append(
                f"{numbers.topic}: the server has its numbers up to {numbers.last_sequence}; its "
                "puts go on behind them, and some that have a receipt may be lost"
            )
    return lines


def _object(client_id: str, loss: "Loss", *, accepted: bool) -> dict[str, object]:
    from oncemq.client.lost_history import goes_on_at

    return {
        "client": client_id,
        "accepted": accepted,
        "generation": loss.here.generation,
        "known_generation": loss.known.generation,
        "another_log": loss.is_another_log,
        "another_branch": loss.parted,
        "taken": [
            {"topic": each.topic, "cursor": each.known, "goes_on_at": goes_on_at(each)}
            for each in loss.cursors
        ],
        "subscribed_again": [each.topic for each in loss.again],
        "put": [
            {"topic": each.topic, "lost": max(0, each.acknowledged - each.last_sequence)}
            for each in loss.numbers
        ],
    }


for _command in (list_, accept, forget, repair):
    client.add_command(_command)
