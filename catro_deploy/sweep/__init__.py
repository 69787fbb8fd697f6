"""Sweeps: many runs that share a network and its images, one for each cell of a matrix, on one machine or several."""
