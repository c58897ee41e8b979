"""Inbox and outbox in the user's own database, on the user's own connection.

`connections` recognizes a connection without importing its library; `with_*` has one file for each
library. `inbox` is the table of cursors, `outbox` the table of puts that wait.

How messages are consumed into a database (`consume(into=connection)`):

1. The first time, the rows of the inbox are read, the server confirms that this client is the
   current one, and the fences of the rows are raised in a commit of their own: from here on an
   older process of the same client cannot commit. What the database has is settled at the server.
2. Messages are taken as for any `consume`; `session/inbox_rule` checks that they begin exactly
   where the database stands.
3. BEGIN, the user's block, then the cursors move from exactly where they stood, and COMMIT.
4. The client's journal follows, and the server hears of it with the next request. If either is
   lost, the database's cursor wins at the next start.
"""
