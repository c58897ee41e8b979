"""The server's rules, pure: requests in, a `Step` of records to write and replies to send out.

No clock, socket, file, thread or randomness: time and identities are arguments. `state` is what a
fold of the log gives; the modules here decide.
"""
