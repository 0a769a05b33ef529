"""Data sets: one class each, found by ``benchmarks.registry.discover``."""
