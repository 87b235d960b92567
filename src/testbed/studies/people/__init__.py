"""People as observers beside models, compared by their decisions; and shape bias from Python."""
