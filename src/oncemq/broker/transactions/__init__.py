"""Transactions: messages that are staged, hidden, and published together by one commit.

What a user wants is that several topics get messages, and several cursors move, all or none, once.
The log gives this for one record: a frame is there whole or not at all. So a commit is one record,
and everything that it needs is in the log before it.

How it works.

1. Stage. Messages that may be many and large go into a stage first (`StagePut`): batches in the
   log, under an id of the stage's own, which no reader can name. A stage's name is its producer:
   its messages are numbered 1, 2, 3 …, and a repeated batch is known by its numbers, by the same
   judgement as a put (state/producers). A stage is on disk and belongs to nobody's connection: it
   may be filled by one process and published by another. Nothing put into it for `stage_ms`, it
   is given up.
2. Commit. `CommitRequest` names pieces (of which stage, from where, how many, to which topic),
   inputs (which subscription, from which offset up to which cursor), an owner and a number. It is
   judged as a whole, before anything is written: one piece that is not there, one input that
   somebody settled meanwhile, one required topic that nobody would read, and nothing of it
   happens.
3. One record. What passes becomes `Committed`: the parts with their offsets in the topics, and the
   cursors. Applying it moves all ends and all cursors at once. Topics that do not exist are made by
   records before it; they are empty then, which is no half of anything.
4. Seen together. Readers see messages when the log is durable up to the record (Gets.synced): all
   topics of a commit become longer before the first of those who wait for them is woken.

Once. An owner counts its commits 1, 2, 3 …, and the server remembers the last numbers with their
answers (state/owners). A number that was used is answered as it was the first time, without
looking at pieces or inputs: they are gone by then, rightly. The number and the effect are in the
same record, so no crash can part them. With `bond` an owner's name belongs to one checkpoint of a
pipeline: another that uses the same name by mistake is refused instead of being taken for it.

Where the messages are. A commit copies nothing. Its parts say where in the stage the topic's
messages lie, and reading follows that (storage/catalog/commit_parts). So the stage is kept for as
long as a topic keeps some of it (`StagedMessages.low`), and compaction may later move the last few
messages into the topics and end the stage (server/housekeeping).

Why not lock, or write twice. A lock on inputs would have to outlive a client that is gone; instead
each commit says from where it read, and the second of two is refused. Publishing by copies would
write all messages again, and a crash in the middle would leave some of them visible.
"""
