"""Files: named arrays and plain values come in, containers that run no code go out."""
