"""Write the graphs of a network and the code that torch generates for them."""

import logging
from pathlib import Path

from trainkit.compiler import graphs
from trainkit.compiler.errors import first_line
from trainkit.diagnosis.trial import PHASES, Subject, Trial

logger = logging.getLogger(__name__)


def write_code(subject: Subject, folder: Path) -> list[Path]:
    """Write the graphs of both phases and their generated code; return the files.

    They are in `folder/forward` and `folder/training`, with the names of graphs.watched. `folder/index.txt` lists for
    each graph its source lines and the break that ended it. If a phase fails, its files are those up to the failure,
    and a log line says so. The cache is fresh, because a graph from a cache has no code.
    """
    paragraphs = []
    files: list[Path] = []
    for phase in PHASES:
        phase_folder = folder / phase
        phase_folder.mkdir(parents=True, exist_ok=True)
        captured = _capture_graphs(subject, phase, phase_folder)
        paragraphs.append(graphs.index(phase, captured, phase_folder))
        files += phase_folder.iterdir()
    index = folder / "index.txt"
    index.write_text("\n".join(paragraphs), encoding="utf-8")
    return [index, *sorted(files)]


def _capture_graphs(subject: Subject, phase: str, folder: Path) -> list[graphs.Captured]:
    logger.info("%s: compiling with a cold cache for its graphs and kernels", phase)
    captured: list[graphs.Captured] = []
    trial = Trial(subject, phase, graphs.watched(subject.config.compile, folder, captured))
    try:
        with trial.running("cold"):
            for batch in trial.batches:
                trial.step(batch)
    except Exception as error:  # of any kind, as in the phase itself
        logger.info("%s: its graphs are those up to %s", phase, first_line(error))
    return captured
