"""Damaged and hostile inputs, by the hundred thousand: ``python -m fuzz TARGET``."""
