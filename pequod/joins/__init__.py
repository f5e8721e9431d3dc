"""Cache joins: from text to a checked `CacheJoin`, and the geometry of key patterns."""
