"""The client's rules, pure: numbers of puts, cursors, the handshake, what is to be asked.

`publisher` numbers puts. `subscriber` is what concerns three nouns together: `cursors` (where the
client stands), `prefetched` (what came and was not handed out), `told_cursors` (what the server
knows of that). `outgoing` has what the client's parts want to be asked, `inflight` what is under
way. `handshake`, `listener_order` and `inbox_rule` are the rules of a start, a feed and an inbox.
"""
