"""The five papers: each room holds an algorithm as printed, its rivals and its presets.

The core imports none of these rooms; the names of their solvers load them.
``python -m experiments run dsg`` measures the claims of a room again, and
``docs/reproduction/dsg.md`` has the verdicts.
"""
