"""`once cluster`: a cluster on one machine, how a cluster is, and what a person changes of it.

dev                      the command that runs it all on one machine; `local_cluster` its processes,
                         `etcd_program` the etcd that it starts
status                   asks servers (`asking`) and etcd (`agreed`); PURE: `report` is what they
                         know together, `findings` what is wrong with it
drain, remove, found     transactions over etcd (`agreed`), after looking at the servers
demo/                    leaders killed in turn under publishers and a subscriber, and the audit

Law: nothing here is needed by a server. What changes a cluster is a transaction that rests on what
was looked at: whatever changed meanwhile, it does not happen, and is decided anew.
"""
