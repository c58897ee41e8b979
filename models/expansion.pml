/* The in-sync set of a shard grows and shrinks while its leader commits, and dies at any time.
 *
 * Shows (G7): whoever may be elected has everything that was committed. Of
 * replication/in_sync_set and in_sync_changes. A change is asked for at a revision, happens later
 * or never, and the leader learns of it later still. Member 0 leads; 0 and 1 are in sync at first.
 */
#define N 3      /* records */
#define BIT(m) (1 << (m))
#define NONE 3

byte log[3];                       /* records on each disk, synced: a beginning of the leader's */
byte commit;
byte in_sync = 3, proposed = NONE, revision;      /* the coordinator's */
byte seen = 3, seen_proposed = NONE, seen_revision; /* the same, as the leader last saw it */
byte leaving = NONE;               /* whom the leader asked to leave, and has not heard */
byte ask_in_sync, ask_proposed, ask_revision;     /* what is under way to the coordinator */
bool asking;

#define ASK(set, member) ask_in_sync = set; ask_proposed = member; ask_revision = seen_revision; asking = true

#ifdef BUG_COMMIT_BEFORE_PROPOSED
#define WAITS(m) (seen & BIT(m))
#else
#define WAITS(m) ((seen & BIT(m)) || seen_proposed == m)
#endif
#ifdef BUG_SHRINK_BEFORE_ANSWER
#define COUNTS(m) (WAITS(m) && leaving != m)
#else
#define COUNTS(m) WAITS(m)
#endif
#define HAS_MORE(m) (!COUNTS(m) || log[m] > commit)
#ifdef BUG_EXPAND_EARLY
#define HAS_ALL(m) true
#else
#define HAS_ALL(m) (log[m] >= commit)
#endif

active proctype leader() {
  byte m;
end_leads:
  do
  :: log[0] < N -> log[0]++
  :: atomic { commit < log[0] && HAS_MORE(1) && HAS_MORE(2) && (seen & 6) -> commit++ }
  :: atomic { !asking -> select(m : 1 .. 2);
     if
     :: (seen & BIT(m)) && (seen & ~BIT(m) & 6) -> ASK(seen & ~BIT(m), seen_proposed); leaving = m
     :: !(seen & BIT(m)) && seen_proposed == NONE -> ASK(seen, m)
     :: seen_proposed == m && HAS_ALL(m) -> ASK(seen | BIT(m), NONE)
     :: seen_proposed == m -> ASK(seen, NONE)
     :: else
     fi }
  :: atomic { seen_revision != revision ->
     seen = in_sync; seen_proposed = proposed; seen_revision = revision; leaving = NONE }
  od
}

active proctype members() {
  byte m;
end_follows:
  do
  :: atomic { select(m : 1 .. 2); if :: log[m] < log[0] -> log[m]++ :: else fi }
  od
}

active proctype coordinator() {
  byte m;
end_decides:
  do
  :: atomic { asking && ask_revision == revision && revision < 6 ->
     in_sync = ask_in_sync; proposed = ask_proposed; revision++; asking = false }
  :: atomic { asking -> asking = false } /* lost, or out of date */
  :: atomic { select(m : 1 .. 2); /* the leader is gone: this one is elected */
     assert(!(in_sync & BIT(m)) || log[m] >= commit) }
  od
}
