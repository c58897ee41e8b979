"""What client and server say to each other and what the log holds: requests, replies, records.

Pure values, shared by both sides. The rules are elsewhere: the server's in `broker`, the client's
in `session`. Their bytes are in `wire`.
"""
