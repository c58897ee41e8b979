/* A put that is refused for good, the ones behind it that get its numbers, and late copies.
 *
 * Shows (G2, "what a put's answers mean"): nothing is stored twice under two numbers, and what the
 * publisher was told is not stored never is. Of session/publisher.refused and resumed, broker/permits,
 * broker/puts. The network keeps every copy of a put and of a resume for good: each may arrive at
 * any time, any number of times. The server's disk is full now and then, and it forgets permits.
 *
 * BUG_RENUMBER_AT_ONCE was once shipped: the first "storage_full" was final, and the numbers were
 * given again without asking.
 */
#define N 2       /* messages */
#define PERMITS 4 /* so many resumes are answered */
#define BIT(n) (1 << (n))
#define AT(p, s) ((p) * (N + 1) + s)

byte number[N + 1];                 /* the publisher: the sequence of each message under way, or 0 */
byte permit;                        /* ... under which it sends */
byte doubted;                       /* ... messages that were refused, perhaps */
bool resuming, has_resumed;         /* ... whether it waits for a resume; whether it ever did */
byte sent[(PERMITS + 1) * (N + 1)]; /* the network: the messages ever sent under permit and number */
byte refused;                       /* messages the user was told are not stored */
byte newest, issued, last, log[N + 1], stored; /* the server; newest 0: no permit is remembered */
bool has_forgotten;
byte accepted, denied, outdated;        /* replies on their way, one bit for each message */
byte answer, answer_last;           /* the reply to a resume: its permit, and where the server stands */

inline send() {
  for (i : 1 .. N) {
    if
    :: number[i] -> sent[AT(permit, number[i])] = sent[AT(permit, number[i])] | BIT(i)
    :: else -> skip
    fi
  }
  i = 0
}

inline renumber() { /* session/publisher.resumed; what is above s was not found */
  for (i : 1 .. N) {
    if
    :: number[i] && number[i] <= s -> number[i] = 0 /* stored after all */
    :: number[i] > s && (doubted & BIT(i)) ->
       assert(!(stored & BIT(i))); number[i] = 0; refused = refused | BIT(i)
    :: else -> skip
    fi
  }
  for (i : 1 .. N) {
    if
    :: number[i] -> s++; number[i] = s
    :: else -> skip
    fi
  }
  s = 0; doubted = 0; accepted = 0; denied = 0; outdated = 0; send()
}

active proctype publisher() {
  byte i, m, s;
  atomic { number[1] = 1; number[2] = 2; send() }
end_sent:
  do
  :: atomic { !resuming && (accepted | denied | outdated) -> select(m : 1 .. N);
     if
     :: (accepted & BIT(m)) && number[m] -> number[m] = 0
     :: (denied & BIT(m)) && number[m] -> doubted = doubted | BIT(m);
#ifdef BUG_RENUMBER_AT_ONCE
        s = last; renumber()
#else
#ifdef BUG_REFUSAL_BELIEVED_AT_ONCE
        refused = refused | BIT(m); number[m] = 0;
#endif
        resuming = true; has_resumed = true; answer = 0
#endif
     :: (outdated & BIT(m)) && number[m] -> resuming = true; has_resumed = true; answer = 0
     :: else -> skip
     fi;
     accepted = accepted & ~BIT(m); denied = denied & ~BIT(m); outdated = outdated & ~BIT(m); m = 0 }
  :: atomic { resuming && answer ->
     permit = answer; s = answer_last; resuming = false; answer = 0; answer_last = 0; renumber() }
  od
}

active proctype server() {
  byte p, s, m;
end_served:
  do
  :: atomic { select(p : 0 .. PERMITS); select(s : 1 .. N); select(m : 1 .. N); /* a put */
     if
     :: !(sent[AT(p, s)] & BIT(m)) -> skip
     :: else ->
        if
        :: s == last + 1 -> denied = denied | BIT(m) /* no room; that is looked at first */
        :: s == last + 1 ->
           if
#ifndef BUG_ANY_PERMIT_HOLDS
           :: newest && p != newest -> outdated = outdated | BIT(m)
#ifndef BUG_TRUSTS_WHAT_IT_FORGOT
           :: !newest && has_forgotten -> outdated = outdated | BIT(m)
#endif
#endif
           :: else ->
              assert(!(stored & BIT(m)) && !(refused & BIT(m)));
              last = s; log[s] = m; stored = stored | BIT(m); accepted = accepted | BIT(m)
           fi
        :: s <= last && log[s] == m -> accepted = accepted | BIT(m)
        :: s > last + 1 -> outdated = outdated | BIT(m) /* a gap: the publisher asks where it stands, too */
        :: s <= last && log[s] != m -> skip /* a conflict, of an old copy: nobody waits for that */
        fi
     fi;
     p = 0; s = 0; m = 0 }
  :: atomic { has_resumed && issued < PERMITS -> /* a resume, or an old copy where it forgot */
     issued++; newest = issued;
     if
     :: resuming && !answer -> answer = newest; answer_last = last
     :: skip
     fi }
  :: atomic { newest -> newest = 0; has_forgotten = true }
  od
}
