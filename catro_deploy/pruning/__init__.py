"""Pruning: worth of channels, widths within a budget, the cut."""
