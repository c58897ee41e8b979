"""Sockets that speak ZeroMQ's protocol: the server's own (`serving`), the client's by libzmq.

Nothing else imports zmq.
"""
