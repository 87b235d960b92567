"""Accuracy without labels, from stored results: python autoeval.py --models M --source S --test T."""

from testbed.commands.autoeval import main

if __name__ == "__main__":
    main()
