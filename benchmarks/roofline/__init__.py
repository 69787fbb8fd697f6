"""The latency estimate for GPUs: fit, errors, published latencies."""
