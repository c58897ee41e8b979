"""One running server: the driver that makes decisions durable, and the loop around it.

`loop` is the one thread that receives and replies; `worker` is a thread that blocks for it (the
writer, the janitor). `driver` has no socket and no thread: the simulator runs it as it is.
"""
