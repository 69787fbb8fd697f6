"""CATRO's arithmetic: scatter matrices, trace ratio, gains of widths, and the allocation of widths (docs/paper.md)."""
