"""`--metadata FILE.json` and `--metadata NAME=TEXT`, as often as needed -> what the file is to say of the model."""

from __future__ import annotations

import argparse
import json

from delegraph.program.user_metadata import UserMetadata, metadata_fault

__all__ = ["add_argument"]


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--metadata`; its value is a list of mappings, of which a later one counts where two have a name."""
    parser.add_argument(
        "--metadata",
        action="append",
        default=[],
        type=_metadata,
        metavar="FILE.json|NAME=TEXT",
        help="what the file says of the model: author=Ada, or a JSON object of texts, numbers and lists of these; may"
        " be repeated; `delegraph inspect` shows it",
    )


def _metadata(text: str) -> UserMetadata:
    name, equals, value = text.partition("=")
    if equals and name:
        return {name: value}
    try:
        with open(text, encoding="utf-8") as file:
            metadata: UserMetadata = json.load(file)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error.strerror}; write NAME=TEXT or a JSON file's name") from error
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is not JSON: {error}") from error
    if fault := metadata_fault(metadata):
        raise argparse.ArgumentTypeError(f"{text}: {fault}")
    return metadata
