"""The command lines: parse, call one function, print. eval.py and db.py are thin over these."""
