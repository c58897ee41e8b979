"""The SDK: two thin shells, blocking and asyncio, over one engine and the pure core."""
