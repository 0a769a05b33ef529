"""What is measured: one class each, found by ``benchmarks.registry.discover``."""
