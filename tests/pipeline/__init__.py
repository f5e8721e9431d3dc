"""Tests of the data pipeline."""
