"""What widths cost in time on a target: models of layers, prices of candidates, candidates measured."""
