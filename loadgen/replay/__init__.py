"""Replaying: operations from files, by client processes that measure what they take."""
