"""Tests: one file for each module, and the oracle that judges the engine."""
