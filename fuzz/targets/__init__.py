"""What is attacked, one module for each kind of input."""
