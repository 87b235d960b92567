"""Pictures out of parquet files against the same pictures as files: a pass in order, the first picture, memory."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import photographs

from testbed import ParquetDataset, StandardDataset
from testbed.data.samples import Samples

GROUP_BYTES = 100_000_000  # what the datasets library writes today
AT_ONCE = 500  # pictures that are in memory while a file is written


def write(pictures: Sequence[Path], target: Path, group_bytes: int = GROUP_BYTES) -> None:
    """A parquet file as datasets 5.2 writes it: row groups of 100 MB, small pages, pictures not compressed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", kind), ("label", pa.int64())])
    mean = sum(p.stat().st_size for p in pictures[:AT_ONCE]) / min(len(pictures), AT_ONCE)
    rows = int(group_bytes / mean)
    with pq.ParquetWriter(
        target,
        schema,
        compression="none",
        use_dictionary=["image.path"],
        write_page_index=True,
        use_content_defined_chunking=True,
    ) as writer:
        for first in range(0, len(pictures), rows):
            group = pictures[first : first + rows]
            cells = [{"bytes": p.read_bytes(), "path": p.name} for p in group]
            labels = [int(p.parent.name.rpartition("_")[2]) for p in group]
            writer.write_table(pa.table({"image": pa.array(cells, kind), "label": labels}, schema), rows)


def one_pass(samples: Samples, threads: int) -> float:
    """Seconds of processor time for decoding every picture in order."""
    began = time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda index: samples.load(index).size, range(len(samples)), chunksize=1):
            pass
    return time.process_time() - began


FIRST = """
import sys, time
began = time.perf_counter()
from testbed.data.parquet import ParquetDataset
samples = ParquetDataset(path=sys.argv[1]).open([])
samples.load(0)
print(f"{time.perf_counter() - began:.2f} {time.process_time():.2f} {len(samples)}")
"""
MEMORY = """
import os, sys
from testbed.data.parquet import ParquetDataset
def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
samples = ParquetDataset(path=sys.argv[1]).open([])
start, marks = megabytes(), []
for index in range(min(len(samples), int(sys.argv[2]))):
    samples.read(index)
    if index % 500 == 499:
        marks.append(megabytes())
half = len(marks) // 2
print(f"{max(marks[:half]) - start:.0f} {max(marks[half:]) - start:.0f}")
"""


def told(program: str, *words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, text=True)
    return done.stdout.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=50_000, help="images of the set that is opened")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures = photographs(folder, chosen.images)
        write(sorted(pictures.glob("*/*")), folder / "some.parquet")
        as_files, as_rows = StandardDataset(path=pictures).open([]), ParquetDataset(folder / "some.parquet").open([])
        for threads in (1, 4):
            both = [(one_pass(as_files, threads), one_pass(as_rows, threads)) for _ in range(chosen.rounds)]
            files, rows = (min(taken) for taken in zip(*both, strict=True))
            print(
                f"{chosen.images} photographs in order, {threads} threads: files {files:.2f} s, parquet {rows:.2f} s, "
                f"ratio {rows / files:.2f}"
            )
        found = sorted(pictures.glob("*/*"))
        write([found[i % len(found)] for i in range(chosen.many)], folder / "many.parquet")
        seconds, computed, count = told(FIRST, str(folder / "many.parquet"))
        print(f"first picture of {int(count):,}: {seconds} s, {computed} s of processor time; imports included")
        early, late = told(MEMORY, str(folder / "many.parquet"), "20000")
        print(f"memory above the start over 20,000 pictures: first half {early} MB, second half {late} MB")


if __name__ == "__main__":
    main()
