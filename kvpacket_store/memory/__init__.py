"""The RAM tier: what was read and decoded once, kept within a number of bytes."""

from kvpacket_store.memory.tier import MemoryStats, MemoryTier

__all__ = ["MemoryStats", "MemoryTier"]
