"""Tests of the cache-join language, one file for each of its modules."""
