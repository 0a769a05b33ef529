"""How seconds per block and peak memory of cached-response block descent grow with rows."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log
from pathlib import Path
from typing import ClassVar

from benchmarks.objectives._shared import answer, draw, middle_row, picture
from benchmarks.registry import Objective, Row

FITS, GROWTH = "blocks over rows", "growth between sizes"
KINDS = ("stored", "tiled")
SHARE = 0.6  # of the machine's memory that kept block values may take


def physical_memory() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def too_large(rows: int, width: int, memory: int) -> str | None:
    """Return why a block's values cannot be kept in `memory` bytes, or None."""
    size = 4 * rows * width
    if size <= SHARE * memory:
        return None
    return (
        f"{size / 1e9:.1f} GB of block values are more than {SHARE:.0%} of "
        f"{memory / 1e9:.1f} GB of memory"
    )


def exponents(fits: Sequence[Row]) -> list[Row]:
    """Return the powers of the rows with which seconds and memory grow, size to size."""
    out = []
    for kind in KINDS:
        done = [r for r in fits if r["values"] == kind and r.get("s/block") is not None]
        for a, b in pairwise(sorted(done, key=lambda r: r["rows"])):
            step = log(b["rows"] / a["rows"])
            row = {"values": kind, "from": a["rows"], "to": b["rows"]}
            for key in ("s/block", "peak GB"):
                row[f"power of {key}"] = log(b[key] / a[key]) / step
            out.append(row)
    return out


class CachedGrowth(Objective):
    """Seconds per block, peak memory above the data, and error, over numbers of rows.

    Generated float32 rows of 20 columns in two noisy classes, with log_loss. "stored" fits
    have room for the values of a block on all rows, "tiled" ones only for rows and responses
    and compute the values again in every pass. Each fit has a process of its own, which
    compiles on few rows and then forgets its peak so far. "s/block" is the median of blocks
    2 and later; the first one also checks, hashes and prepares the rows. "same" compares the
    decisions on 10,000 held-out rows, bit for bit, with those of the other fits of as many
    rows; "noise %" is the error of the border that labels were drawn around.
    """

    name: ClassVar[str] = "cached_growth"
    repeat: ClassVar[int] = 1

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add sizes."""
        parser.add_argument(
            "--rows", type=int, nargs="+", default=[10**4, 10**5, 10**6, 4 * 10**6]
        )
        parser.add_argument("--blocks", type=int, default=3, help="of a fit, at least 2")
        parser.add_argument("--block-size", type=int, default=1024)
        parser.add_argument("--threads", type=int, default=2)

    def run(self, args: argparse.Namespace) -> Iterator[tuple[str, Row]]:
        """Take both kinds in turn in every repeat, size after size."""
        sizes, width = ([4000, 16_000], 256) if args.quick else (args.rows, args.block_size)
        fits: list[Row] = []
        for rows in sorted(sizes):
            found: dict[str, list[Row]] = {}
            for kind in KINDS:
                reason = too_large(rows, width, physical_memory())
                if kind == "stored" and reason is not None:
                    yield FITS, {"rows": rows, "values": kind, "skipped": reason}
                else:
                    found[kind] = []
            case: Row = {"kind": "growth", "rows": rows, "blocks": args.blocks,
                          "width": width, "threads": args.threads}  # fmt: skip
            for _ in range(args.repeat):
                for kind, lines in found.items():
                    lines.append(answer("_cached_case", case | {"stored": kind == "stored"}))
            digests = {line["digest"] for lines in found.values() for line in lines}
            compared = sum(map(len, found.values())) > 1
            for kind, lines in found.items():
                fit = {"rows": rows, "values": kind} | middle_row(lines)
                fit["same"] = len(digests) == 1 if compared else None
                fits.append(fit)
                yield FITS, fit
        for row in exponents(fits):
            yield GROWTH, row

    def plot(self, tables: dict[str, list[Row]], path: Path) -> bool:
        """Draw seconds per block and peak memory against rows, with a line of slope 1."""
        panels = (("s/block", "seconds per block"), ("peak GB", "peak GB above the data"))
        done = [r for r in tables[FITS] if "skipped" not in r]
        sizes = sorted(r["rows"] for r in done)
        with picture(path, 1, 2, size=(4.2, 3.8)) as axes:
            for ax, (key, label) in zip(axes[0], panels, strict=True):
                draw(ax, done, "values", "rows", key, KINDS, "o-")
                low = min(r[key] for r in done if r["rows"] == sizes[-1])
                guide = [low * n / sizes[-1] for n in (sizes[0], sizes[-1])]
                ax.plot([sizes[0], sizes[-1]], guide, color="grey", ls=":", label="slope 1")
                ax.set(xscale="log", yscale="log", xlabel="training rows", ylabel=label)
            axes[0][0].legend()
        return True
