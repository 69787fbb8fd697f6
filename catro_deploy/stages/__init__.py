"""The stages, one module for each: a stage reads files of earlier ones in the run folder and writes its own."""
