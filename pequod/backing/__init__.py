"""Databases behind the cache: which rows are which keys, loading them, following their changes."""
