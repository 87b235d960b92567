"""Accuracy without labels: scores, direct estimates and agreement, from stored outputs. Arrays to numbers, no torch."""
