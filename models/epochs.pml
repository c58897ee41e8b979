/* Two replicas of a log, leaders that follow each other, logs that part, and their checkpoints.
 *
 * Shows (G1 G7): what was committed is in the log of each later leader, and what is cut was in no
 * checkpoint. Of replication/leader, follower and epoch_table; invariants of docs/REPLICATION.md.
 * A record is known by the epoch of its leader. Both replicas are in sync all the time.
 */
#define N 3      /* records in a log */
#define EPOCHS 3

byte log[8];          /* log[4 * server + serial]: the epoch of the record; serials from 1 */
byte size[2];
byte promised[2];
byte told[2];         /* how far each knows the commit: in memory */
byte checkpoint[2];   /* ... on the disk */
byte leader, newest, began; /* who leads which epoch, and the serial that it began with; 0: not yet */
byte acked;           /* what the follower acknowledged to this leader; matched: it may go on */
bool matched;
byte committed[4], commit; /* what clients were told of */

#define LOG(s, i) log[4 * (s) + (i)]
#define OTHER (1 - leader)

inline cut(s, serial) {
  do
  :: size[s] > serial -> LOG(s, size[s]) = 0; size[s]--
  :: else -> break
  od;
  assert(size[s] >= checkpoint[s])
}

inline elect(s) { /* the coordinator's compare-and-swap; the winner's log has all that is committed */
  leader = s; newest++; promised[s] = newest; began = 0;
  for (i : 1 .. commit) { assert(size[s] >= i && LOG(s, i) == committed[i]) }
  acked = 0; matched = false; i = 0
}

active proctype shard() {
  byte i, at;
end_stores:
  do
  :: atomic { newest < EPOCHS -> elect(0) }
  :: atomic { newest < EPOCHS -> elect(1) }
  :: atomic { newest && size[leader] < N -> /* the first record of an epoch is its own */
     size[leader]++; LOG(leader, size[leader]) = newest;
     began = (began == 0 -> size[leader] : began) }
  :: atomic { newest && !matched -> /* the leader is heard of: where do the logs part? */
     promised[OTHER] = newest;
#ifdef BUG_CUT_BY_COMMIT
     cut(OTHER, told[OTHER]);
#endif
     at = (size[OTHER] < size[leader] -> size[OTHER] : size[leader]);
#ifndef BUG_MATCH_BY_LENGTH
     do
     :: at && LOG(OTHER, at) != LOG(leader, at) -> at--
     :: else -> break
     od;
#endif
     cut(OTHER, at);
     matched = true; acked = at; at = 0 }
  :: atomic { matched && size[OTHER] < size[leader] ->
     size[OTHER]++; LOG(OTHER, size[OTHER]) = LOG(leader, size[OTHER]); acked = size[OTHER] }
  :: atomic { began && acked > commit && acked >= began && size[leader] >= acked ->
     do
     :: commit < acked -> commit++; committed[commit] = LOG(leader, commit)
     :: else -> break
     od;
     told[leader] = commit }
  :: atomic { matched && told[OTHER] < told[leader] -> told[OTHER] = told[leader] }
#ifdef BUG_CHECKPOINT_WHAT_IS_DURABLE
  :: atomic { checkpoint[0] < size[0] -> checkpoint[0] = size[0] }
#else
  :: atomic { checkpoint[0] < told[0] -> checkpoint[0] = told[0] }
#endif
  :: atomic { told[0] > checkpoint[0] -> told[0] = checkpoint[0] } /* it starts again */
  od
}
