"""Final check of a result in float64."""

from __future__ import annotations

from dataclasses import dataclass

AUDIT_WORK, AUDIT_LEAST = 2 * 10**9, 64  # operations of an audit, and rows at least


@dataclass(frozen=True)
class Audit:
    """The objective that cached responses claim, and the one found in float64."""

    claimed: float
    objective: float
    drift: float  # their difference, relative to the claim
    rows: int  # number of rows evaluated again: all, or a sample if that is expensive
