"""The asyncio client: verbs that are awaited, on the event loop that has the client.

`base`, `client`, `columns`, `inbox_blocks`, `puts` and `transactions` are written here and
generated in `client.blocking` (tools/unasync.py). What differs is written by hand in both: `runner`
(how a client waits, and its lock), `getting` (who gets at a time), `listener` (when an iterator is
over); and `pending` here, `client.pending` there: a receipt that is still to come.
"""
