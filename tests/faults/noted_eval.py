"""eval.py that notes every chunk which it has recorded. A program of its own: see killing.py.

    NOTES=FILE python noted_eval.py --models ...

The database forgets the chunks of a result as soon as it is whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from testbed.commands.evaluate import main
from testbed.store.claims import Chunk
from testbed.store.database import Store


def note_chunks() -> None:
    record = Store.record_chunks

    def noted(store: Store, chunks: Sequence[Chunk]) -> set[int]:
        lost = record(store, chunks)
        facts = [(c.evaluation_id, c.start, c.stop, c.seconds, c.device) for c in chunks if c.evaluation_id not in lost]
        with open(os.environ["NOTES"], "a", encoding="utf-8") as notes:
            notes.write("".join(f"{json.dumps(fact)}\n" for fact in facts))  # in one piece, whoever is killed
        return lost

    Store.record_chunks = noted  # type: ignore[method-assign]


if __name__ == "__main__":
    note_chunks()
    main()
