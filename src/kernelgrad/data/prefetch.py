"""Work ahead of its consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

T = TypeVar("T")


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yield items, each of which a thread makes while the one before it is used.

    At most two items exist at a time, besides what the consumer keeps. An error of `items`
    is raised where its item would have come. The thread ends with the last item, and when
    the iterator is closed or collected.

    Parameters
    ----------
    items : iterable
        Whatever makes the items; only the thread uses it.

    Yields
    ------
    object
        The items, in order.
    """
    iterator, end = iter(items), cast(T, object())
    close: Any = getattr(iterator, "close", lambda: None)  # of generators
    with ThreadPoolExecutor(1, "kernelgrad-prefetch") as thread:
        try:
            ready = thread.submit(next, iterator, end)
            while (item := ready.result()) is not end:
                ready = thread.submit(next, iterator, end)
                yield item
        finally:
            thread.submit(close)
