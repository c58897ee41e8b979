/* A publisher with an outbox, a server with a log, a network that loses, doubles and delays.
 *
 * Shows (G1 G2 G3): nothing is stored twice, out of order or with a gap, nothing acknowledged is
 * lost, and a number never stands for two messages. Of session/publisher, broker/state/producers,
 * client/state/outbox; invariants 2, 6 and 9. The network keeps every put for good: each may arrive at
 * any time, any number of times. Numbers do not change here; renumber.pml is about that.
 */
#define N 3      /* messages */
#define WINDOW 2 /* puts under way */
#define BIT(n) (1 << (n))

byte given;          /* messages the application has put: 1..given */
byte numbered;       /* the message that has a number and is not on the disk yet */
byte recorded;       /* the publisher's disk: sequences 1..recorded */
byte message[N + 1]; /* ... and what each stands for */
byte done_disk;      /* ... and up to where they are known to be answered */
byte done;           /* the same in memory: ahead of the disk */
byte sent[N + 1];    /* the network: the messages ever sent under each sequence */
byte acknowledged;   /* messages the publisher has a receipt for */

byte log[N + 2], tip, durable; /* the server: its log up to `tip`, on disk up to `durable` */
byte last;                     /* ... what it remembers of the producer */
byte owed[N + 1];              /* ... its replies, each with the serial it waits for */

#define SEND(s, m) sent[s] = sent[s] | BIT(m)

active proctype publisher() {
  byte crashes, i;
  do
  :: given < N && !numbered && recorded - done < WINDOW ->
     given++; numbered = given;
#ifdef BUG_SEND_BEFORE_RECORD
     SEND(recorded + 1, numbered);
#endif
  :: atomic { numbered ->
     recorded++; message[recorded] = numbered; numbered = 0; done_disk = done;
     SEND(recorded, message[recorded]) }
  :: atomic { crashes < 2 ->
     crashes++; numbered = 0; done = done_disk;
     for (i : 1 .. N) { owed[i] = 0 } /* its tokens died with it */
     i = 0 }
  :: given == N && !numbered && done == recorded -> break
  od;
  for (i : 1 .. recorded) { assert(i <= durable && log[i] == message[i]) }
}

active proctype server() {
  byte crashes, s, m, i;
end_served:
  do
  :: atomic { select(s : 1 .. N); select(m : 1 .. N); /* a put arrives */
     if
     :: !(sent[s] & BIT(m)) -> skip
     :: (sent[s] & BIT(m)) && s == last + 1 -> /* new */
        for (i : 1 .. tip) { assert(log[i] < m) } /* not stored before, and in order */
        tip++; last = s; log[tip] = m; owed[s] = tip
     :: (sent[s] & BIT(m)) && s <= last -> /* duplicate; it must not be a conflict */
        assert(log[s] == m); owed[s] = tip
     :: (sent[s] & BIT(m)) && s > last + 1 -> skip /* a gap: refused, and sent again */
     fi;
     s = 0; m = 0; i = 0 }
  :: durable < tip -> durable = tip
  :: atomic { select(s : 1 .. N); /* a reply leaves, and comes; one lost is one not yet sent */
     if
#ifdef BUG_ACK_BEFORE_SYNC
     :: owed[s] ->
#else
     :: owed[s] && owed[s] <= durable ->
#endif
        owed[s] = 0; acknowledged = acknowledged | BIT(message[s]);
        done = (s > done -> s : done)
     :: else -> skip
     fi;
     s = 0 }
  :: atomic { crashes < 2 -> /* what was not synced is gone, and all that was in memory */
     crashes++;
     do
     :: tip > durable -> assert(!(acknowledged & BIT(log[tip]))); log[tip] = 0; tip--
     :: else -> break
     od;
     for (i : 1 .. N) { owed[i] = 0 }
     i = 0;
#ifdef BUG_FORGET_PRODUCERS
     last = 0
#else
     last = tip /* the fold of the log: one producer, one message a put */
#endif
     }
  od
}
