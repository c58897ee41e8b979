"""The asyncio client: the same verbs, awaitable."""
