"""What numbers from few images can tell: agreement, intervals, chance."""
