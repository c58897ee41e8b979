/* How a start gets its epoch: two twins on one state directory, crashes anywhere, late hellos.
 *
 * Shows: two starts never hold one epoch; whatever crashed, the next start is let in; and a start
 * is called stale, or fenced, only when another claim was granted while it was asking. Of
 * session/handshake, broker/state/clients, client/engine/handshake, client/state/journal.
 * Nonces are numbered in the order of their claims; nonce 0 is a client with another state, which
 * was perhaps granted an epoch before. The network keeps every hello for good. A hello with no
 * epoch is "taken" where one was granted: who was never let in claims anew, over that epoch.
 *
 * Once shipped: BUG_ZERO_IS_FRESH (broker/state/clients.judge let a hello with epoch 0 in over any grant),
 * BUG_READ_IN_PARTS (client/state/state.greeting took three transactions), BUG_OWN_CLAIM_NOT_TRIED
 * (session/handshake.refused gave up before it, though a twin may have asked about it).
 */
#define STARTS 4 /* claims */
#define BIT(n) (1 << (n))

byte epoch_disk, claims_disk;    /* the journal: the newest epoch, claims without a recorded grant */
byte granted, nonce;             /* the server: the newest epoch, and whose it is */
byte holder[2 * STARTS + 3];     /* of each epoch, the start that acts under it */
byte starts;                     /* so many claims were made */
short sent[STARTS + 2];          /* the network: with which last epochs each nonce was ever said */
byte own[2];                     /* of each twin: the claim it made */
bool overtaken[2];               /* ... whether another claim was granted since it read the state */

/* Whoever starts now is not called stale: it has no epoch yet, the newest is recorded, or its claim. */
#define RECOVERABLE (!epoch_disk || granted == epoch_disk || (claims_disk & BIT(nonce)))

inline judge(n, with) { /* broker/state/clients.judge; `grant` is 0 when it is refused, or taken */
  if
  :: granted && nonce == n -> grant = granted
#ifdef BUG_ZERO_IS_FRESH
  :: (!granted || nonce != n) && 0 < with && with < granted -> grant = 0
  :: (!granted || nonce != n) && (with == 0 || with >= granted) ->
#else
  :: (!granted || nonce != n) && with < granted -> grant = 0
  :: (!granted || nonce != n) && with >= granted ->
#endif
     granted = (granted > with -> granted : with) + 1; nonce = n; grant = granted;
     overtaken[0] = overtaken[0] || n != own[0]; overtaken[1] = overtaken[1] || n != own[1]
  fi
}

inline say() { /* hello, with the newest claim that is not cleared up */
  asked = claim;
  if
  :: earlier -> asked = STARTS + 1;
     do
     :: earlier & BIT(asked) -> break
     :: else -> asked--
     od
  :: else -> skip
  fi;
  sent[asked] = sent[asked] | BIT(last)
}

inline claims() { /* client/state/state.greeting: what stands there is read, the claim written, at once */
  starts++; claim = starts; own[me] = claim;
#ifndef BUG_CLAIM_NOT_RECORDED
  claims_disk = claims_disk | BIT(claim)
#endif
}

proctype twin(bit me) {
  byte earlier, last, claim, asked, grant, over;
start:
  if
  :: starts >= STARTS -> goto gone
  :: atomic { starts < STARTS -> assert(RECOVERABLE); earlier = claims_disk; overtaken[me] = false;
#ifdef BUG_READ_IN_PARTS
     }
     atomic {
#endif
     last = epoch_disk; claims() }
  fi;
  do
  :: atomic { say(); judge(asked, last);
     if
     :: grant && asked == claim -> break
     :: grant && asked != claim -> last = (last > grant -> last : grant); earlier = 0;
#ifdef BUG_TAKE_EARLIER_GRANT
        break
#endif
     :: !grant && !last && !earlier -> over = granted /* taken */
     :: !grant && earlier ->
        earlier = earlier & ~BIT(asked);
#ifdef BUG_OWN_CLAIM_NOT_TRIED
        if
        :: earlier || !last -> skip
        :: else -> assert(overtaken[me]); goto dead
        fi
#endif
     :: !grant && last && !earlier -> assert(overtaken[me]); goto dead
     fi }
  :: atomic { over && epoch_disk -> assert(overtaken[me]); goto dead } /* a twin was let in */
  :: atomic { over && !epoch_disk && starts < STARTS -> /* it claims anew, and takes over */
     earlier = claims_disk; overtaken[me] = overtaken[me] || granted != over; last = over; over = 0;
     claims() }
  :: atomic { over && !epoch_disk && starts >= STARTS -> goto dead }
  :: atomic { say(); goto dead } /* a crash; the hello may arrive later */
  od;
  atomic { assert(!holder[grant] || holder[grant] == claim); holder[grant] = claim }
  if
  :: atomic { epoch_disk = (epoch_disk > grant -> epoch_disk : grant);
#ifdef BUG_DELETE_ALL_CLAIMS
     claims_disk = 0
#else
     if
     :: claims_disk & BIT(claim) -> claims_disk = claims_disk & ~(BIT(claim + 1) - 1)
     :: else -> skip
     fi
#endif
     }
  :: skip /* a crash before the grant is recorded */
  fi;
dead:
  atomic { earlier = 0; last = 0; claim = 0; asked = 0; grant = 0; over = 0; own[me] = 0;
    overtaken[me] = 0 }
  if
  :: goto start
  :: true -> skip
  fi;
gone:
  skip
}

active proctype network() { /* a hello from long ago arrives; nobody hears the answer */
  byte n, with, grant;
end_silence:
  do
  :: atomic { starts > 0 -> select(n : 1 .. starts);
     if /* the others are refused: nothing comes of them */
     :: with = granted
     :: with = 0
     fi;
     if
     :: sent[n] & BIT(with) -> judge(n, with)
     :: else -> skip
     fi;
     n = 0; with = 0; grant = 0 }
  od
}

init {
  if
  :: granted = 1 /* by nonce 0, which is on another disk */
  :: skip
  fi;
  atomic { run twin(0); run twin(1) }
}
