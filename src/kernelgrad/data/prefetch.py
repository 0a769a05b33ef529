"""Iteration with a background thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

T = TypeVar("T")


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield items, each produced by a thread while the previous one is used.

    At most two items exist at a time, besides those that the consumer keeps. An error in
    `items` is raised in place of its item. The thread ends after the last item, and when the
    iterator is closed or garbage-collected.

    Parameters
    ----------
    items : iterable
        Produces the items; only the thread uses it.

    Yields
    ------
    object
        The items, in order.
    """
    iterator, end = iter(items), cast(T, object())
    close: Any = getattr(iterator, "close", lambda: None)  # generators have it
    with ThreadPoolExecutor(1, "kernelgrad-prefetch") as thread:
        try:
            ready = thread.submit(next, iterator, end)
            while (item := ready.result()) is not end:
                ready = thread.submit(next, iterator, end)
                yield item
        finally:
            thread.submit(close)
