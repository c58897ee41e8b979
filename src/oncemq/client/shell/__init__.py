"""What the blocking and the asyncio client share beside the engine: turns, signals, forks."""
