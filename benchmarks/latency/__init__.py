"""How well latency is predicted, and what allocations achieve with the predictions."""
