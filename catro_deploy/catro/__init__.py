"""CATRO's arithmetic: scatter, trace ratio, gains of widths, and the allocation of widths (docs/paper.md)."""
