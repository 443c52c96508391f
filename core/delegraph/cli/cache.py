"""`delegraph cache [FOLDER]`: show what backends compiled at load and keep for later loads, or remove it."""

from __future__ import annotations

import argparse
import json
from datetime import datetime

__all__ = ["add_parser", "run"]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `cache` to the command line."""
    parser = subparsers.add_parser("cache", help="show or empty the cache of code that was compiled at load")
    parser.add_argument(
        "folder",
        nargs="?",
        help="as in delegraph.load(…, cache=FOLDER) (default: DELEGRAPH_CACHE, or the one of cache=True)",
    )
    parser.add_argument("--clear", action="store_true", help="remove all entries, and nothing else in the folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code."""
    from delegraph.interfaces.compilation_cache import CompilationCache
    from delegraph.tables import Table, count, print_table

    cache = CompilationCache.of(args.folder) or CompilationCache.of(True)
    assert cache is not None  # True is always one
    if args.clear:
        cache.clear()
    entries = cache.entries()
    total = sum(entry.nbytes for entry in entries)
    if args.json:
        told = [{"path": str(e.path), "nbytes": e.nbytes, "used": e.used, "key": dict(e.key)} for e in entries]
        print(json.dumps({"folder": str(cache.folder), "max_bytes": cache.max_bytes, "entries": told}, indent=2))
        return 0
    rows = [
        (str(entry.key.get("backend")), str(entry.key.get("driver")), count(entry.nbytes), _time(entry.used))
        for entry in reversed(entries)
    ]
    print_table(Table("", ("backend", "driver", "bytes", "last used"), rows, frozenset({"bytes"})))
    print(f"{cache.folder}: {len(entries)} entries, {total:,} of at most {cache.max_bytes:,} bytes")
    return 0


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
