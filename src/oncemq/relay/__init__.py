"""The relay: publishes the rows of an outbox in the user's database, each exactly once.

How a row travels:

1. `oncemq.outbox(connection).put` (`databases/outbox`) inserts a row in the user's transaction.
2. The transaction commits. On PostgreSQL a trigger gives the transaction its place in the order of
   commits and notifies; on SQLite the relay looks for commits. `notifications` wakes the relay.
3. `session` finds the topics that have rows, and steps a `topic_relay` (pure) for each.
4. `topic_relay` first asks the server where the outbox's producer stands on the topic (a Resume,
   through `publisher`), once for each stay at the database.
5. It names the rows of the next batch; their sequence numbers are written to the outbox's tables
   (`tables`) and committed before anything is sent.
6. The rows are read, encoded and put under the outbox's own producer and those numbers.
7. The receipt comes; the next transaction notes it and deletes the rows.

A crash anywhere leads back to step 4 and to the same put, which the server takes for a duplicate if
it had it. Rows for a topic that nobody subscribes to wait (`required`, ADR 24).
"""
