"""The latency of given widths on a target: cost models of layers, prices of widths, timing of candidates."""
