"""Tests of the server, by real sockets."""
