"""The command line: one file per command, loaded when it is asked for.

A command `name` is the object `name` in the module that the table of `cli.main` names, made with
`cli.terminal.command.command`. It takes a `CommandSession`, which has the settings, the client and
the ways to answer, and it raises to fail: `cli.terminal.guard` turns an error into words and an
exit code. Nothing here imports the client, the server or the storage before a command needs it.
"""
