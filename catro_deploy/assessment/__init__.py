"""Evaluation for decisions: the first look at the original, the metric, and which of two networks is kept."""
