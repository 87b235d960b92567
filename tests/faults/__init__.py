"""Faults that users and machines bring: changed data, damaged files, killed runs, odd input.

These tests follow no module. Each brings a fault about and asks for one of two ends: the right result, or one clear
line and nothing lost. docs/reliability.md lists them.
"""
