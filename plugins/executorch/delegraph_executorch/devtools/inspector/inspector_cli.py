"""python -m delegraph_executorch.devtools.inspector.inspector_cli --etdump_path FILE: the table of an ETDump."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from delegraph_executorch.devtools.inspector import Inspector, TimeScale, compare_results

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    scales = [scale.value for scale in TimeScale]
    parser = argparse.ArgumentParser(description="Print what an ETDump says.")
    parser.add_argument("--etdump_path", required=True, help="the ETDump")
    parser.add_argument("--etrecord_path", help="the ETRecord of the program, for operators and modules")
    parser.add_argument("--method_name", help="the method that ran, if the ETDump does not say it")
    parser.add_argument("--debug_buffer_path", help="the debug buffer of the ETDump, for values")
    parser.add_argument("--source_time_scale", choices=scales, default=TimeScale.NS.value, help="the runtime's unit")
    parser.add_argument("--target_time_scale", choices=scales, default=TimeScale.MS.value, help="the unit to show")
    parser.add_argument("--tsv_path", help="write the table there as well, for spreadsheets")
    parser.add_argument(
        "--compare_results", action="store_true", help="compare runs on bundled inputs with what is right"
    )
    options = parser.parse_args(arguments)
    inspector = Inspector(
        etdump_path=options.etdump_path,
        etrecord=options.etrecord_path,
        debug_buffer_path=options.debug_buffer_path,
        source_time_scale=TimeScale(options.source_time_scale),
        target_time_scale=TimeScale(options.target_time_scale),
        method_name=options.method_name,
    )
    inspector.print_data_tabular()
    if options.tsv_path:
        with open(options.tsv_path, "w", encoding="utf-8") as file:
            inspector.save_data_to_tsv(file)
    for block in inspector.event_blocks if options.compare_results else ():
        if block.reference_output is not None:
            compare_results(block.reference_output, block.run_output or [])


if __name__ == "__main__":
    main()
