"""Files that results come from and go to: logits dumps, published tables, decisions of people."""
