"""The client's engine: what goes to the server and what comes back, for both shells.

How a get goes:

1. `Client.get` asks `client/verbs/messages`: what was fetched ahead is taken first.
2. Else `fetches` leaves a `Get` for the engine (`session/outgoing`), which says what was settled
   since the last request. The server moves those cursors, and answers with what is visible, or
   waits (a long poll).
3. The batches that come are verified by the publisher's own checksum; `session/subscriber` drops
   what lies below its cursor, and keeps the rest (`session/prefetched`).
4. The journal (`client/state/journal`) records the new cursor, synced; then the messages are
   returned. The server hears of it with the next request.

How a push goes:

1. `Client.listen` makes `listening` send a `Listen`. The answer names the topics, where each ends,
   and the address of the feed; a SUB socket connects there, one subject for each topic.
2. A put that becomes visible is sent once on the feed, to all listeners, after the replies.
3. The client verifies the checksum, and `session/listener_order` decides: it goes on where the
   topic's messages end, overlaps, or leaves a gap. A gap is pulled with a `Get`.
4. A message is settled when the next one is asked for: on disk at once, at the server with the
   next `Listen`, half a second later.

Nothing rests on the feed: while it is away, messages are pulled by waiting gets.
"""
