"""Tests of databases behind the cache, with real databases."""
