"""Sockets: the client's (`connecting`, `dealer`, `feed_subscriber`), and the server's by ZeroMQ.

Nothing else imports zmq.
"""
