"""Five studies that compare kernelgrad with other methods; ``kernelgrad demo`` runs them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .page import write_page
from .studies import STUDIES
from .work import Work


def run(folder: Path, quick: bool) -> dict[str, Any]:
    """Make the studies, write page, pictures and models to `folder`, and return the results."""
    start = time.perf_counter()
    studies = []
    with Work(folder, quick) as work:
        for number, study in enumerate(STUDIES, 1):
            work.say(f"{number} of {len(STUDIES)}: {study.__doc__.rstrip('.')}")
            result = study(work)
            same = work.same_after_load(result.name, result.model, result.X_test)
            studies.append(replace(result, same_after_load=same))
    seconds = time.perf_counter() - start
    page = write_page(folder, studies, seconds)
    results = {study.name: study.as_dict() for study in studies}
    return {"seconds": seconds, "page": str(page), "studies": results}
