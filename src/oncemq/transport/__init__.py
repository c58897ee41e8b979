"""ZeroMQ, behind one door: nothing else imports zmq."""
