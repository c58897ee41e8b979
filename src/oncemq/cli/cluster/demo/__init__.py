"""`once cluster demo`: leaders killed in turn under publishers and a subscriber, and the audit."""
