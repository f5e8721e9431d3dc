"""The engine: an ordered store, and cache joins computed, kept fresh and evicted over it."""
