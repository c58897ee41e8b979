/* A subscription's cursor: gets with read-ahead, put-backs, crashes, resubscribing, a twin.
 *
 * Shows (G4 G6): each subscription gives each message once, in order, none left out. Of
 * session/subscriber, broker/gets, client/state/journal, client/verbs/messages; invariant 9. A message counts as
 * given when the cursor on the client's disk passes it. Both subscriptions begin at offset 0.
 *
 * BUG_FORGET_UNFENCED was once shipped in client/state/journal.forget: a client that was fenced after its
 * unsubscribe deleted the cursor of the twin that had subscribed again since.
 */
#define N 2       /* messages, offsets 0 and 1 */
#define CURSOR 99 /* "from the cursor" */

byte next_given[3];                   /* of each subscription: what must be given next */
byte subscription = 1, cursor, epoch; /* the server; subscription 0: there is none */
byte journal_subscription, journal_cursor, journal_epoch; /* the client's disk */
byte made = 1, starts;

inline came() { /* session/subscriber.came */
  if
#ifndef BUG_STALE_FETCH
  :: asked != CURSOR && asked != ahead -> skip /* put back since */
#endif
  :: else ->
#ifndef BUG_RESUBSCRIBE_KEEPS_CURSOR
     if
     :: mine != reply_subscription -> mine = reply_subscription; next = reply_first
     :: else -> skip
     fi;
#endif
     first = (reply_first > next -> reply_first : next);
     first = (ahead != CURSOR && ahead > first -> ahead : first);
     if
     :: first < reply_end ->
        fetched = (fetched < fetched_end -> fetched : first); fetched_end = reply_end;
        ahead = reply_end;
#ifdef BUG_SETTLE_BEFORE_DELIVERY
        next = reply_end; journal_subscription = mine; journal_cursor = next
#endif
     :: else -> skip
     fi
  fi
}

proctype client() {
  byte my_epoch, mine, next;                    /* its epoch, its subscription, its cursor */
  byte fetched, fetched_end, ahead, taken;      /* the feed; taken: one more than the offset */
  byte asked, told_subscription, told;          /* the get under way */
  byte reply_subscription, reply_first, reply_end, first;
  bool under_way, replied;
start:
  atomic { ahead = CURSOR;
#ifdef BUG_CURSORS_READ_BEFORE_GRANT
  mine = journal_subscription; next = journal_cursor;
#endif
  }
  atomic { epoch++; my_epoch = epoch }
  atomic { journal_epoch = (my_epoch > journal_epoch -> my_epoch : journal_epoch) }
#ifndef BUG_CURSORS_READ_BEFORE_GRANT
  atomic { mine = journal_subscription; next = journal_cursor }
#endif
  do
  :: atomic { !under_way && subscription && fetched == fetched_end || /* none left, or read ahead */
       !under_way && subscription && fetched_end - fetched == 1 ->
     asked = ahead; told_subscription = mine; told = next; under_way = true }
  :: atomic { under_way && !replied -> /* the server answers a get */
     if
     :: my_epoch != epoch -> goto gone
     :: my_epoch == epoch && !subscription -> under_way = false
     :: my_epoch == epoch && subscription ->
        cursor = (told_subscription == subscription && told > cursor -> told : cursor);
        reply_first = (asked != CURSOR && asked > cursor -> asked : cursor);
        if
        :: reply_first + 1 < N -> reply_end = reply_first + 1
        :: reply_end = N
        fi;
        reply_subscription = subscription;
        if
        :: reply_first < N -> replied = true
        :: else -> under_way = false
        fi
     fi }
  :: atomic { replied -> came(); replied = false; under_way = false; asked = 0; first = 0;
     reply_subscription = 0; reply_first = 0; reply_end = 0; told = 0; told_subscription = 0 }
  :: atomic { !taken && fetched < fetched_end -> fetched++; taken = fetched }
  :: atomic { taken -> /* it took effect: the disk first, and only for the newest epoch */
     next = (taken > next -> taken : next);
     if
     :: my_epoch != journal_epoch -> goto gone
     :: else -> assert(taken - 1 == next_given[mine]); next_given[mine] = taken;
        journal_subscription = mine; journal_cursor = next; taken = 0
     fi }
  :: atomic { taken -> taken = 0; fetched = 0; fetched_end = 0; ahead = CURSOR } /* put back */
  :: atomic { made == 1 && !taken && my_epoch == epoch && subscription -> /* unsubscribe */
     subscription = 0;
     mine = 0; next = 0; under_way = false; replied = false; fetched = 0; fetched_end = 0;
     ahead = CURSOR; asked = 0; reply_first = 0; reply_end = 0; reply_subscription = 0 }
     if
#ifdef BUG_FORGET_UNFENCED
     :: atomic { journal_subscription = 0; journal_cursor = 0 }
#else
     :: atomic { my_epoch == journal_epoch -> journal_subscription = 0; journal_cursor = 0 }
#endif
     :: goto gone /* or a crash before the journal forgets it */
     fi
  :: atomic { my_epoch == epoch && !subscription -> /* subscribe again, from the first message */
     made = 2; subscription = 2; cursor = 0;
#ifdef BUG_RESUBSCRIBE_KEEPS_CURSOR
     mine = 2
#else
     mine = 2; next = 0
#endif
     }
  :: atomic { subscription == mine && next == N && my_epoch == epoch && !taken ->
     assert(next_given[mine] == N); break }
  :: starts < 3 || my_epoch != epoch -> goto gone /* a crash, or it hears that it is fenced */
  od;
gone:
  atomic { my_epoch = 0; mine = 0; next = 0; fetched = 0; fetched_end = 0; taken = 0; asked = 0;
    told = 0; told_subscription = 0; reply_subscription = 0; reply_first = 0; reply_end = 0;
    first = 0; under_way = false; replied = false; ahead = 0 }
  if
  :: atomic { starts < 3 -> starts++; goto start }
  :: skip
  fi
}

init { starts = 2; run client(); epoch > 0 -> run client() }
