"""What "auto" stands for: rows and a loss come in; solver, kernel, scaling and penalty go out."""
