"""Writes down which models the installed timm and torchvision offer, so that listing them need not import them.

Run it after a new version of either is taken up: python tools/list_model_names.py
"""

import json
from importlib.metadata import version

from testbed.models.strings.names import LISTED, SHIPPED, ask_package

KINDS = ("timm", "torchvision")


def main() -> None:
    SHIPPED.mkdir(exist_ok=True)
    for kind in KINDS:
        for old in SHIPPED.glob(f"{kind}-*.json"):
            old.unlink()
        names = ask_package(kind)
        (SHIPPED / f"{kind}-{version(LISTED[kind])}.json").write_text(json.dumps(names, indent=0) + "\n")
        print(f"{kind} {version(LISTED[kind])}: {len(names)} models")


if __name__ == "__main__":
    main()
