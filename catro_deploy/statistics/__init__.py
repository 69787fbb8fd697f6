"""Statistics of predictions on small image sets: agreement, confidence intervals, chance level."""
