"""Which channels are coupled: labels are followed through every operation of a forward."""
