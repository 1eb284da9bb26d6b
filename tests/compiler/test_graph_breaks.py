"""Every graph break is found in its line, and the functions that it leaves to Python."""

from pathlib import Path

import pytest

from tests import networks
from tests.networks import network
from trainkit.training.run import run

TRAINING = ("compile.backend=aot_eager", "trainer.max_epochs=1", "trainer.limit_val_batches=0")


def lines(comment: str) -> list[int]:
    text = Path(networks.__file__).read_text().splitlines()
    return [number for number, line in enumerate(text, start=1) if line.endswith(f"# {comment}")]


def test_every_graph_break_is_one_site_in_its_line(compose):
    row = run(compose(*TRAINING, network("ManyBreaks"), "trainer.limit_train_batches=6"))
    expected = [lines(f"BREAK {name}")[0] for name in ("print", "item", "branch", "numpy")]
    assert [(site.file, site.line) for site in row.graph_breaks] == [("tests/networks.py", n) for n in expected]
    assert row.num_graph_breaks == 4
    assert all(site.reason for site in row.graph_breaks)
    assert not any(site.uncompiled or site.uncompiled_after for site in row.graph_breaks)
    assert (row.effective_mode, row.effective_mode_reason, row.num_eager_steps) == ("default", None, 0)


def test_a_branch_is_one_site_whether_or_not_it_was_traced_inside_of_another_function(compose):
    row = run(
        compose(
            *TRAINING, "model=tensor_branch", "model.rewritten=false", "data=synthetic", "trainer.limit_train_batches=6"
        )
    )
    (site,) = row.graph_breaks
    assert (site.reason, site.id, site.code) == ("Data-dependent branching", "GB0170", "elif x.mean() > 0:")
    assert site.explanation.startswith("Detected data-dependent branching")
    assert row.num_graph_breaks == 1


# Where the function is not first traced as a part of another one, torch tells the last place before the break alone.
@pytest.mark.parametrize(
    ("name", "words", "comments"),
    [
        ("TriesFirst", [], ["FIRST break"]),
        ("TriesFirst", ["compile.scope=net"], ["FIRST last place"]),
        ("BreaksInTry", [], ["BREAK before", "BREAK last place"]),
        ("BreaksInLoop", [], ["LOOP before", "LOOP break"]),
    ],
)
def test_what_is_left_to_python_after_a_break_is_said(compose, name, words, comments):
    row = run(compose(*TRAINING, network(name), "trainer.limit_train_batches=6", *words))
    places = [lines(comment)[0] for comment in comments]
    told = [(site.file, site.line, site.uncompiled_after) for site in row.graph_breaks]
    left = [("tests/networks.py", place, None) for place in places[:-1]]
    assert told == [*left, ("tests/networks.py", places[-1], "forward")]
    assert (row.effective_mode, row.num_eager_steps, row.num_compiled_steps) == ("mixed", 6, 0)
    assert row.effective_mode_reason == (f"graph breaks leave to Python: forward after tests/networks.py:{places[-1]}")


def test_a_function_left_to_python_as_a_whole_is_said(compose):
    words = ("model._target_=tests.defects.BranchInLoop", "trainer.limit_train_batches=6")
    row = run(compose(*TRAINING, *words))
    assert (row.effective_mode, row.num_eager_steps) == ("mixed", 6)
    assert row.effective_mode_reason == "graph breaks leave to Python: forward"
