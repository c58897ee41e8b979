/* A put, a resume that does not find it, and copies of the put that come to a later leader.
 *
 * Shows (G2): what the user was told is refused is never stored, though a permit is in the memory
 * of a leader, and another leads. Of broker/permits and the first record of an epoch. The network
 * keeps every put for good. A permit is (epoch of the leader, count).
 */
#define EPOCHS 3
#define NONE 255

byte epoch = 1;
byte issued;              /* permits that this leader gave out */
byte newest = NONE;       /* the one of the producer; NONE: this leader gave it none */
byte sent = NONE;         /* the permit that copies of the put have, on the network */
byte held = NONE;         /* the permit that the producer has */
bool stored, is_durable;  /* the put is in the leader's log; it is committed */
bool refused;             /* the user was told: not stored */
bool acknowledged;

#ifdef BUG_PERMITS_WITHOUT_EPOCHS
#define PERMIT issued
#else
#define PERMIT (10 * epoch + issued)
#endif
#ifdef BUG_EMPTY_AFTER_A_FAILOVER
#define HOLDS (newest == NONE || newest == sent)
#else
#define HOLDS (newest != NONE && newest == sent)
#endif

active proctype producer() {
end_content:
  do
  :: atomic { held != NONE && !refused && !acknowledged -> sent = held } /* put, or put again */
  :: atomic { stored && is_durable && !refused -> acknowledged = true }  /* its answer */
  :: atomic { issued < 3 && !acknowledged && (!stored || is_durable) -> /* a resume, answered */
     issued++; newest = PERMIT; held = newest;
     if
     :: stored -> acknowledged = true
     :: !stored && sent != NONE -> refused = true /* it is believed: the user hears of it */
     :: !stored && sent == NONE
     fi }
  od
}

active proctype leader() {
end_leads:
  do
  :: atomic { sent != NONE && !stored && HOLDS -> stored = true } /* a copy arrives */
  :: atomic { stored && !is_durable -> is_durable = true }
  :: atomic { epoch < EPOCHS -> /* another leads, who remembers what is committed, and no permit */
     epoch++; issued = 0; newest = NONE; stored = is_durable }
  :: atomic { refused && stored -> assert(false) }
  :: atomic { acknowledged && !stored -> assert(false) }
  od
}
