/* A put that is refused for good, the ones behind it that get its numbers, and late copies.
 *
 * Shows (G2, "what a put's answers mean"): nothing is stored twice under two numbers, and what the
 * publisher was told is not stored never is. Of core/publisher.refused and resumed. A put may be
 * sent several times; the network keeps every copy for good. The server's disk is full now and then.
 *
 * FOUND_RENUMBER_IN_ONE_EPOCH is the shipped rule: the first "storage_full" is final, and the
 * numbers are given again at once. The rule here: take a new epoch first, which shuts late copies
 * out, then ask where the server stands, and only then believe that the put was refused.
 */
#define N 2 /* messages */
#define BIT(n) (1 << (n))
#define AT(e, s) ((e) * (N + 1) + s)

byte number[N + 1];           /* the publisher: the sequence of each message under way, or 0 */
byte epoch = 1;               /* ... and its epoch */
byte sent[(N + 2) * (N + 1)]; /* the network: the messages ever sent under epoch and number */
byte refused;                 /* messages the user was told are not stored */
byte server_epoch = 1, last, log[N + 1], stored;
byte accepted, denied;        /* replies on their way, one bit for each message */

inline send() {
  for (i : 1 .. N) {
    if
    :: number[i] -> sent[AT(epoch, number[i])] = sent[AT(epoch, number[i])] | BIT(i)
    :: else -> skip
    fi
  }
  i = 0
}

active proctype publisher() {
  byte i, m, s;
  atomic { number[1] = 1; number[2] = 2; send() }
  do
  :: atomic { select(m : 1 .. N);
     if
     :: (accepted & BIT(m)) && number[m] -> number[m] = 0
     :: (denied & BIT(m)) && number[m] ->
#ifdef FOUND_RENUMBER_IN_ONE_EPOCH
        refused = refused | BIT(m); number[m] = 0;
#else
#ifdef BUG_REFUSAL_BELIEVED_AT_ONCE
        refused = refused | BIT(m); number[m] = 0;
#endif
        epoch++; server_epoch = epoch; /* a hello, and its answer */
#endif
        accepted = 0; denied = 0; s = last; /* resume: what the server has, and the numbers after */
        for (i : 1 .. N) {
          if
          :: number[i] && number[i] <= s -> number[i] = 0 /* stored after all */
          :: number[i] > s && i == m -> number[i] = 0; refused = refused | BIT(i)
          :: else -> skip
          fi
        }
        for (i : 1 .. N) {
          if
          :: number[i] -> s++; number[i] = s
          :: else -> skip
          fi
        }
        s = 0; assert(!(refused & stored)); send()
     :: else -> skip
     fi;
     m = 0 }
  :: !number[1] && !number[2] -> break
  od
}

active proctype server() {
  byte e, s, m;
end_served:
  do
  :: atomic { select(e : 1 .. N + 1); select(s : 1 .. N); select(m : 1 .. N);
     if
     :: e < server_epoch || !(sent[AT(e, s)] & BIT(m)) -> skip
     :: else ->
        if
        :: s == last + 1 ->
           assert(!(stored & BIT(m)) && !(refused & BIT(m)));
           last = s; log[s] = m; stored = stored | BIT(m); accepted = accepted | BIT(m)
        :: s == last + 1 -> denied = denied | BIT(m)
        :: s <= last && log[s] == m -> accepted = accepted | BIT(m)
        :: s > last + 1 || s <= last && log[s] != m -> skip /* a gap, a conflict */
        fi
     fi;
     e = 0; s = 0; m = 0 }
  od
}
