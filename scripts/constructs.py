"""Show what the torch that is installed makes of each construct: `python scripts/constructs.py [NAME ...]`.

--record keeps the outcomes of this version of torch in measurements/constructs.yaml; --page makes the tables of
docs/guide/rewrites.md anew from the outcomes that are there and the measured rows, without measuring.
"""

import argparse
import logging
import sys
from pathlib import Path

from trainkit import cli
from trainkit.config.errors import ConfigError
from trainkit.report.rewrites import Construct, read_constructs, with_tables, write_constructs

ROOT = Path(__file__).parents[1]
MEASUREMENTS = ROOT / "measurements"
OUTCOMES = MEASUREMENTS / "constructs.yaml"
PAGE = ROOT / "docs" / "guide" / "rewrites.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="constructs of measurements/constructs.yaml; all if none"
    )
    parser.add_argument("--record", action="store_true", help="keep the outcomes in measurements/constructs.yaml")
    parser.add_argument("--page", action="store_true", help="make the tables of docs/guide/rewrites.md anew")
    options = parser.parse_args()
    constructs = read_constructs(OUTCOMES)
    if options.page:
        page = with_tables(PAGE.read_text(encoding="utf-8"), constructs, MEASUREMENTS)
        PAGE.write_text(page, encoding="utf-8")
        return 0
    with cli.one_line_errors():
        chosen_constructs = _chosen(constructs, options.names)
        with cli.importing():  # after the checks: importing torch takes seconds
            import torch

            from trainkit.compiler.outcomes import compiled_outcome, trained_outcome

        logging.disable(logging.WARNING)  # torch reports each break
        version = ".".join(torch.__version__.split(".")[:2])
        for construct in chosen_constructs:
            construct.outcomes[version] = compiled_outcome(construct.name)
            line = f"{construct.name}: {construct.outcomes[version]}"
            if construct.same_as:
                construct.gradients[version] = trained_outcome(construct.name, construct.same_as)
                line += f"; {construct.gradients[version]} (beside {construct.same_as})"
            print(line, flush=True)
    if options.record:
        write_constructs(OUTCOMES, constructs)
    return 0


def _chosen(constructs: list[Construct], names: list[str]) -> list[Construct]:
    constructs_by_name = {construct.name: construct for construct in constructs}
    for name in names:
        if name not in constructs_by_name:
            raise ConfigError(f"{name}: no such construct; one of {', '.join(constructs_by_name)}")
    return [constructs_by_name[name] for name in names] or constructs


if __name__ == "__main__":
    sys.exit(main())
