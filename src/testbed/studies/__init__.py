"""What compares several stored evaluations: label-free estimation, people, published numbers, groups of settings."""
