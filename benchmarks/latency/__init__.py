"""How well latency is predicted, and what allocations reach under it."""
