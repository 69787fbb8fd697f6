"""The stages, one module each: a stage reads the files of earlier ones from the run folder and writes its own."""
