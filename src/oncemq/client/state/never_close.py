"""Connections to databases in a forked process: they are the parent's, and stay open."""


def never_close(connection: object) -> None:
    """In a child: let a database's connection be, as SQLite asks of its users.

    Not at the end of the process either, so one reference to it stays for good.
    """
    import ctypes  # loaded by those who fork

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
