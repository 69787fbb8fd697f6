"""What accuracy is left after a pruning, by method, criterion and training."""
