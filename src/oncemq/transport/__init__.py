"""ZeroMQ sockets with every option they need; nothing else imports zmq."""
