"""The blocking client: the verbs of `client.aio`, which threads may share.

Files that say so in their first line are generated. By hand: `runner`, `getting`, `listener`.
"""
