"""Block descent with cached responses."""
