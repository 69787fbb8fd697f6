"""Quantisation: the graphs that runtimes run fast, and which layers must stay in floating point."""
