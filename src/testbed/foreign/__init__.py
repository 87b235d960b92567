"""Plug-in files that were written for the ImageNet Testbed: their import lines, and the words they find there."""
