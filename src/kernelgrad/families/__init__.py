"""Families of functions: parameters and rows come in, a choice and a problem go out."""
