"""The arithmetic of CATRO: scatter, trace ratio, allocation. Arrays in, arrays out."""
