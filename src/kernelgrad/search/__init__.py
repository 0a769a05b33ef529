"""What "auto" stands for: rows and a loss come in; solver, kernel and penalty go out."""
