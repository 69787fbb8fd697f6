"""What networks are judged by: the first look at the original, agreement and accuracy, and which of two stays."""
