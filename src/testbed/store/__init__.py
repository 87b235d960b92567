"""Where results live: the database, the logits files, and the one door to both (find.py). Imports no torch."""
