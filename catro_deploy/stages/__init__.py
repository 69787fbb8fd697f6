"""One verb a file: each stage reads what earlier ones wrote into the run folder and writes its own part."""
