"""People: their decisions as observers beside models, and shape bias from Python."""
