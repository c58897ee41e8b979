"""The checker: facts about messages in, findings out. Pure, linear in the number of facts.

Simulated histories, the server's log, receipts, journals and ledgers all become the same `facts`
and are judged by the same code (`checker`), in the tests and in `once audit`.
"""
