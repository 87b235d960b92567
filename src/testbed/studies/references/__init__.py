"""Published numbers a set-up is checked against, and what explains a number that does not come out."""
