"""In words: who did not answer in time, and what became of the puts that wait."""

from oncemq.client.context import ClientContext
from oncemq.client.puts.put_buffer import PutBuffer
from oncemq.errors import OnceMQError, StorageFull, Unreachable
from oncemq.protocol.replies import RefusedReply


def unanswered(
    client: ClientContext,
    puts: PutBuffer,
    refusal: RefusedReply | None,
    no_leader: str,
    limit: float,
    what: str,
) -> OnceMQError:
    """The error of who waited `limit` seconds for something.

    `refusal`: why it is not let in; `no_leader`: who was asked, and does not lead.
    """
    kept = ""
    if client.state.lasting and puts.unsent:
        where = client.state.directory
        kept = f"; {puts.unsent} puts are recorded in {where} and go out later"
    servers = ", ".join(client.settings.servers)
    late = f"within {limit:g} s while waiting for {what}"
    if puts.trouble and refusal is None:  # a leader said it, whatever became of it since
        answer = f"not all that was put is stored {late}: {puts.trouble}"
        return Unreachable("; ".join(filter(None, (answer, no_leader))) + kept)
    if no_leader:
        look = "`once cluster status` says why"
        return Unreachable(f"no leader found {late}: {no_leader}{kept}; {look}")
    if refusal is None:
        return Unreachable(f"no answer from {servers} {late}{kept}")
    full = f"not let in by {servers} {late}: {refusal.detail}{kept}"
    # What may still go out must not sound as if it were refused.
    return Unreachable(full) if puts.unsent else StorageFull(full, code="storage_full")
