"""Rows in files, for tests of estimators that read them."""

import numpy as np
import pandas as pd

from kernelgrad import ArraySource, open_source

KINDS = ("csv", "parquet", "npy")


def opened(folder, kind, rows, y=None, w=None, name="rows"):
    """Write rows to a file and return a source of it."""
    path = folder / f"{name}.{kind}"
    columns = {k: v for k, v in (("y", y), ("w", w)) if v is not None}
    weight = None if w is None else "w"
    if kind == "memmap":
        rows.tofile(path)
        mapped = np.memmap(path, rows.dtype, "r", shape=rows.shape)
        return ArraySource(mapped, y, w)
    if kind == "npy":
        paths = {k: folder / f"{name}_{k}.npy" for k in columns}
        for own, values in ((path, rows), *((paths[k], v) for k, v in columns.items())):
            np.save(own, values)
        return open_source(path, target=paths.get("y"), weight=paths.get("w"))
    names = [f"x{i}" for i in range(rows.shape[1])]
    frame = pd.DataFrame(rows, columns=names).assign(**columns)
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=500)
    else:
        frame.to_csv(path, index=False, float_format="%.9g")
    return open_source(path, target=None if y is None else "y", weight=weight)


class Unread(ArraySource):
    """A source whose rows nobody may read."""

    def take(self, rows):
        raise AssertionError("rows were read")


def named(model, rows):
    """Return rows with the names of the columns that the model was fitted to, if any."""
    names = getattr(model, "feature_names_in_", None)
    return rows if names is None else pd.DataFrame(rows, columns=names)
