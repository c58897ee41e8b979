"""A server of a cluster: the rules of replication joined to a log, a broker, sockets and etcd.

How it works. `replica.Replica` stands where a server alone has its driver: the loop gives it what
comes in, asks it for groups to write, and sends what it leaves. It has one of these at a time:

    nothing yet    the cluster does not know this opening of the directory
    following      the log takes what the leader sends, the state what is committed
    leading        the log goes to the others; a driver answers clients once they have let it
    filling        the directory is being filled with the leader's files
    closing        the log is to be opened anew, once nothing is under way to the disk

`agreement` stands between the coordinator's events and the rules; `links` are the connections to
the other servers; `transfer` has both ends of a transfer of files, `mending` is about a log that is
damaged; `replica_directory` is a directory with its state; `housekeeping` asks `keeper`.

Laws: nothing here reads a clock, opens a socket or starts a thread but `links` and
`cluster_server`: so the simulator runs the rest. Stepping down and cutting are opening anew.
"""
