"""The command line: one file per command, loaded when it is asked for.

A command `name` is the object `name` in `oncemq.cli.name`, made with `cli.command.command` and
listed in the table of `cli.main`. It takes a `Session`, which has the settings, the client and
the ways to answer, and it raises to fail: `cli.failures` turns an error into words and an exit
code. Nothing here imports the client, the server or the storage before a command needs it.
"""
