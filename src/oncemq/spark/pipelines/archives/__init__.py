"""Topics kept as Parquet or Delta, each message once.

How a step of an archive goes:

1. `place` checks whose directory it is and locks it; a subscription of the query's own
   (`spark/source/retention_subscription`) keeps the topics' messages on the server.
2. `store` says how far the archive is: what readers see is the truth, there is no checkpoint.
3. `archive` plans offset ranges; a task each (`tasks`) reads its range and writes files by day
   under hidden names, synced and read back.
4. The driver asks the server whether it is still the newest run of this archive.
5. The files are renamed in the order of offsets and their directories synced (`files`); with Delta
   it is one commit (`delta`). A reader sees a beginning of the topic at any moment.
6. The subscription's cursor moves: the server may free the messages.
"""
