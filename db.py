"""Query and manage stored results: python db.py --print-eval MODEL SETTING."""

from testbed.commands.database import main

if __name__ == "__main__":
    main()
