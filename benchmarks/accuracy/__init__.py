"""Accuracy after pruning, by method, criterion and training."""
