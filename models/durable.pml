/* What is durable when: kills, power cuts, failed syncs, retries, a reader.
 *
 * Shows (G1 G9): what was acknowledged, first or as a duplicate, and what a reader was shown is
 * never lost. Of broker/recorder.answer, broker/gets.synced, storage/log/writer, storage/log/recovery
 * ("recovered is not durable"). One record after the other; a kill loses memory, a power cut the
 * page cache too. A failed sync leaves pages that count as clean but are not on the disk.
 */
#define N 2

byte tip;      /* records in the server's memory, 1..tip */
byte cached;   /* ... of which the page cache has these */
byte clean;    /* ... and takes these for written back: a sync writes only what is above */
byte disk;     /* ... and these are on the disk */
byte durable;  /* up to here the server believes */
byte asked;    /* puts the client has sent; it sends each again until it is answered */
byte told;     /* records somebody outside knows of: acknowledged, or read */
bool up = true;

active proctype client() {
end_content:
  do
  :: atomic { asked < N && told >= asked -> asked++ }
  :: atomic { up && asked > tip -> tip++ } /* the put arrives, and is new */
  :: atomic { up && asked > told && asked <= durable -> told = asked } /* its answer */
#ifdef BUG_DUPLICATE_ANSWERED_EARLY
  :: atomic { up && asked > told && asked <= tip -> told = asked } /* it arrives again */
#else
  :: atomic { up && asked > told && asked <= tip && tip <= durable -> told = asked }
#endif
#ifdef BUG_READ_BEFORE_SYNC
  :: atomic { up && told < tip -> told = tip } /* a reader gets what is visible */
#else
  :: atomic { up && told < durable -> told = durable }
#endif
  od
}

active proctype server() {
  byte kills, cuts, failures;
end_running:
  do
  :: atomic { up && cached < tip -> cached = tip } /* written, not synced */
  :: atomic { up && durable < cached ->            /* synced: only what counts as dirty is written */
     disk = (clean < cached -> cached : disk); clean = cached; durable = cached }
  :: atomic { up && durable < cached && failures < 1 -> /* the sync fails: the server stops */
     failures++; clean = cached; up = false }
  :: atomic { up && kills < 2 -> kills++; up = false }
  :: atomic { cuts < 2 -> cuts++; up = false;
     assert(disk >= told); /* whatever anybody knows of survives */
     cached = disk; clean = disk }
  :: atomic { !up -> /* recovery: what the page cache shows, made durable before it is believed */
     tip = cached; durable = 0 }
     if
#ifdef BUG_TRUST_RECOVERED_TAIL
     :: atomic { durable = cached; up = true }
#else
#ifndef BUG_SYNC_WITHOUT_REWRITE
     :: atomic { clean = disk; /* rewritten in place: its pages are dirty again */
#else
     :: atomic {
#endif
        disk = (clean < cached -> cached : disk); clean = cached; durable = cached; up = true }
#endif
     :: atomic { cuts < 2 -> cuts++; assert(disk >= told); cached = disk; clean = disk } /* again */
     fi
  od
}
