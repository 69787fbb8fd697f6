"""Statistics of answers on few images: agreement, intervals, chance."""
