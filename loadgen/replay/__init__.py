"""Replaying: operations from files, by client processes, with what they cost and how long they take."""
