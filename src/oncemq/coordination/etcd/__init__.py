"""The coordinator over a real etcd, with the standard library only.

coordinator   the port: three threads (asking, watching, being present), each with a connection
connection    HTTP to one of several members, with time limits; moves on to the next
gateway       etcd's JSON gateway: calls and answers as JSON
rules/        PURE: what becomes of a request whose answer is lost, of a watch that broke, of a
              lease that ended; the simulator runs them against its own etcd
"""
