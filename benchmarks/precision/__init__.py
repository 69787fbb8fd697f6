"""int8: accuracy and latency of original and pruned networks."""
