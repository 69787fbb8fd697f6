"""The tables and figures of the CATRO paper."""
