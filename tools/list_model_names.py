"""Writes the model names of the installed timm and torchvision to files, so that listing them needs no import.

Run it after an upgrade of either: python tools/list_model_names.py
"""

import json
from importlib.metadata import version

from testbed.models.strings.names import LISTED, SHIPPED, ask_package

KINDS = ("timm", "torchvision")  # open_clip is optional; its names are asked for once and cached


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
