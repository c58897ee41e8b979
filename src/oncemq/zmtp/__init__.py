"""ZMTP 3.1, ZeroMQ's protocol between two sockets, as a pure state machine: bytes in, events out.

How it works. `connection.ZmtpConnection` is one end of a connection. Who holds the socket gives
it what was received (`receive`), asks for what that means (`next_event`) until there is nothing
more, and sends what it owes (`take_output`): the greeting, the handshake's commands, answers to
pings. `messages.encode` turns a message into bytes. Nothing here knows a socket, a clock or what
OnceMQ says in its messages, so a server, a client, the fuzzer and the tests run the same code.

    greeting     64 bytes each way: a signature, the version, the mechanism
    handshake    the mechanism's commands: for NULL one READY each, which names the socket's type
    open         messages of frames; commands between them: PING, PONG, SUBSCRIBE, CANCEL

What a peer may do is bounded before it does it: each limit is in `limits.WireLimits`, and what is
over one is a `WireError`, after which the connection is of no use. The size of a frame is judged
when its head is read, and memory is taken for what came, not for what was announced.

A frame that did not come in one piece is received where it will lie: `landing` is the rest of it,
to be filled by `recv_into`, and `landed` says how much of it was. So a body is not copied.

What the mechanism does is apart (`mechanism`): CURVE's commands, and the boxes that it packs frames
into, need nothing else changed. What a peer says of itself is kept in `PeerFacts` and decides
nothing: who it is to us, its connection says.
"""
