/* Checkpoints and compaction: when the room of settled messages may be given back.
 *
 * Shows (G4 G9): whatever crash and whatever one damaged checkpoint, recovery finds a state to
 * begin from, every record after it, and every message that the recovered cursor has not passed.
 * Of storage/log/checkpoint, storage/compaction/compaction, server/housekeeping; invariant 7. One segment a
 * record: serials 1 to 3 are messages, serials 4 to 6 are moves of the cursor past each of them.
 */
#define MESSAGES 3
#define N 6 /* serials */
#define LIVES(s, upto) (s <= MESSAGES && s + MESSAGES > upto) /* not settled by the records so far */
#define BIT(n) (1 << (n))

byte tip, durable; /* the log: appended, and synced up to here */
byte freed;        /* segments that are gone, one bit each */
byte older_begin, older_end, newer_begin, newer_end, checkpoints; /* the two newest that are kept */
bool damaged;      /* one checkpoint may rot, once */

inline recover(begin, end) {
  assert(durable >= end);                     /* the log is not older than its checkpoint */
  for (s : 1 .. N) {
    assert(!(s > begin && s <= durable && (freed & BIT(s))));  /* what is replayed is there */
    assert(!(s <= durable && LIVES(s, durable) && (freed & BIT(s))))           /* what lives, too */
  }
  s = 0
}

active proctype server() {
  byte begin, end, planned, s;
end_running:
  do
  :: tip < N -> tip++
  :: durable < tip -> durable = tip
  :: !end && !planned && tip > newer_end -> begin = tip; end = tip /* a capture begins */
  :: end && end < tip && tip > begin -> end = tip                  /* ... and goes on beside work */
#ifdef BUG_CHECKPOINT_AHEAD_OF_LOG
  :: atomic { end ->
#else
  :: atomic { end && durable >= end -> /* ... and is published */
#endif
     older_begin = newer_begin; older_end = newer_end; newer_begin = begin; newer_end = end;
     checkpoints = (checkpoints < 2 -> checkpoints + 1 : 2); begin = 0; end = 0 }
#ifdef BUG_ONE_CHECKPOINT_IS_ENOUGH
  :: atomic { !end && !planned && checkpoints >= 1 -> s = newer_begin;
#else
  :: atomic { !end && !planned && checkpoints == 2 -> s = older_begin;
#endif
     do /* a segment that the checkpoint covers, and of which nothing lives */
     :: s > 0 && !(freed & BIT(s)) && !LIVES(s, tip) -> planned = s; break
     :: s > 0 -> s--
     :: s == 0 -> break
     od;
     s = 0; begin = (planned -> tip : 0) } /* the moves it rests on reach up to here */
#ifdef BUG_FREE_BEFORE_DURABLE
  :: atomic { planned -> freed = freed | BIT(planned); planned = 0; begin = 0 }
#else
  :: atomic { planned && durable >= begin -> freed = freed | BIT(planned); planned = 0; begin = 0 }
#endif
  :: atomic { /* a crash; recovery may find one of the checkpoints damaged */
     tip = durable; begin = 0; end = 0; planned = 0;
     if
     :: checkpoints > 0 -> recover(newer_begin, newer_end)
     :: checkpoints == 2 && !damaged -> damaged = true;
        recover(older_begin, older_end);
        newer_begin = older_begin; newer_end = older_end; checkpoints = 1
     :: checkpoints == 1 && !damaged -> damaged = true;
        recover(0, 0); newer_begin = 0; newer_end = 0; checkpoints = 0
     :: checkpoints == 0 -> recover(0, 0)
     fi }
  od
}
