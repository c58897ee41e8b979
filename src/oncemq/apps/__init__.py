"""Apps: typed handlers for messages, with retries and dead letters. Users hold `oncemq.App`.

How a message is handled:

1. `running` starts a `handler_loop` for each handler: on a thread with a `Client`, or in a task
   with an `AsyncClient`.
2. The loop takes one message with `consume`, or up to `limit` in a transaction: of the user's
   database (`into=`) or of the server (`to=`).
3. `retrying` says what is known of the message from earlier attempts; `attempts` writes to the
   client's disk that it is in hand, so that a crash inside the handler counts as an attempt.
4. The handler runs. If it returns, the block ends: the message is settled, in the transaction's
   commit where there is one.
5. If it raises, the block is left by the exception and nothing of it stays. Of several messages
   each is then taken alone; of one, the attempt is counted and noted, and the wait begins.
6. After the last attempt the verdict is written to disk first; then the message is taken once
   more, the dead letter is put under an idempotency key, and the block ends.
"""
