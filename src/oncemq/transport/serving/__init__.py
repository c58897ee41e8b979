"""The server's end of every connection: plain non-blocking sockets that speak ZMTP, bounded.

    acceptor       an address that is listened on: TCP, or a path
    poller         what happened on which descriptor: epoll, or poll where there is none
    peer           one connection: its socket, its ZMTP, what is owed to it
    connections    all peers of a server, and what they may take of it together
    bound_socket   the peers of one address, heard in turn; under ROUTER and XPUB alike
    peers_time     the time that passes for them
    limits         what peers may take, each limit with its name

All of it runs in the thread of the server's loop. Nothing here waits but `Connections.wait`.
"""
