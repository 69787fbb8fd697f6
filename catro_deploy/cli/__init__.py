"""The command line: wiring, and errors turned into messages and exit codes."""
