"""Benchmarks: Pequod's workloads, driven and measured (`python -m loadgen --help`)."""
