"""Which channels are coupled, found by following labels through every operation of a forward pass."""
