"""Run a program over images one by one, without torch:    python evaluate.py model.pte images.npy logits.npy

Images are [n, 1, 8, 8] float32, logits [n, 10]. Prints, as JSON, the seconds of a call in the median, and of loading
up to the first output.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

import numpy as np

import delegraph


def main(program: str, images_path: str, logits_path: str) -> None:
    images = np.load(images_path)
    start = time.perf_counter()
    model = delegraph.load(program)
    model(images[:1])
    load = time.perf_counter() - start

    logits, seconds = [], []
    for image in np.split(images, len(images)):
        start = time.perf_counter()
        logits.append(model(image))
        seconds.append(time.perf_counter() - start)
    np.save(logits_path, np.concatenate(logits))
    print(json.dumps({"latency": median(seconds), "load": load}))


if __name__ == "__main__":
    main(*sys.argv[1:])
