"""The command lines: parse, call one function, print. eval.py, db.py and autoeval.py only call these."""
