"""Sockets that speak ZeroMQ's protocol: the server's (`serving`), the client's (`connecting`).

No libzmq: `baseline` alone uses it, where it is installed, to measure beside it.
"""
