"""Plain arrays come in and go out: threads, random numbers, matrices, compilation."""
