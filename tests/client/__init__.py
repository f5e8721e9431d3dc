"""Tests of the clients, against real servers."""
