"""The client's end of every connection: plain non-blocking sockets that speak ZMTP, and no thread.

    link             a connection: made, kept busy, made again; under DEALER and SUB alike
    dialing          from a server's address to sockets that connect, round after round
    addresses        what an address says
    name_lookup      a name's addresses, asked for in a thread that ends with the answer
    waits            how long between two rounds
    watched_sockets  the open sockets, behind one descriptor to wait on
    owed_bytes       what a full socket is owed

All of it runs in the calls of whoever waits for an answer (`client/engine`). Nothing here blocks.
"""
