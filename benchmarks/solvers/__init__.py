"""Estimators under comparison: one class each, found by ``benchmarks.registry.discover``."""
