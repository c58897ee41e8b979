"""The rules by which a shard's log is the same on several servers: pure, events in, actions out.

How it works, and why, is in docs/REPLICATION.md. A server has one `Member` for each shard, from
its start on: it says when to stand for election and when to lead. Beside it there is a `Follower`
while another leads, or a `Leader`. Each takes events as methods and returns what is to be done
(`actions`), in order. What a shell has to do:

1. Open the directory, count the opening with the coordinator, and only then make a `Member`, and a
   `Follower` of what the log holds. Give both what arrives: `ShardView`s, messages, syncs, ticks.
2. On `StartLeading`, make a `Leader` of the whole log, with `is_proven` of the follower.
3. On `StepDown` or `Reopen`, close the log, open it anew, make a `Follower` of it (with the number
   of the last answer, and `is_proven`), and say so to the `Member`.
4. Answer messages of leaders that come while this server leads: `Leader.challenged`, and `Stale`.

Who does what: `leader` (what to send, the commit), `in_sync_set` (whom a commit waits for),
`in_sync_changes` (who leaves and enters), `remote_member` (one other replica), `follower`,
`member`, `view` (the coordinator's value, asks, limits), `awaited_answer` (when the connection to a
replica is made anew).

Law: nothing here reads a clock, a socket, a file or chance. Safety rests on no time and no lease.
"""
