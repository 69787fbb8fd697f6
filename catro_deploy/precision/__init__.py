"""Quantisation: graphs that runtimes execute fast, and which layers must stay in floating point."""
