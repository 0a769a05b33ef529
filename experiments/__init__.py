"""Every figure and table of the five papers that public data allow.

``python -m experiments list`` names them, ``python -m experiments run dsg.figure4_2`` runs one.
A new one is a file with a subclass of `Experiment` in the folder of its paper.
"""
