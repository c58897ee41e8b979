"""Files on their way from a leader to a replica that lacks more than frames can bring.

`refills` is the leader's end, with `sent_files` for each member; `filling` is the member's.
"""
