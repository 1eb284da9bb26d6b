"""Batches that change their shape: what comes when, what is compiled for it, and that it never eats a run."""

import dataclasses
import itertools

import pytest

from trainkit.config.errors import ConfigError
from trainkit.data.shapes import SizeSchedule
from trainkit.report import summary
from trainkit.results.files import read_epochs, read_row
from trainkit.training.run import run

IMAGES = ("model=simple_net", "model.width=8", "data=synthetic", "data.image_size=4", "trainer.limit_val_batches=0")
STATIC = ("compile.backend=eager", "compile.dynamic=false", "trainer.max_epochs=1")
TOKENS = (
    "model=mini_transformer", "model.dim=8", "model.depth=1", "model.num_heads=2", "data=synthetic",
    "data.batch_size=4", "data.seq_len=32", "trainer.limit_val_batches=0",
)  # fmt: skip


@pytest.mark.parametrize(("dynamic", "num_graphs"), [("null", 2), ("true", 1), ("false", 4)])
def test_the_dynamic_flag_decides_what_is_compiled_for_four_lengths(compose, dynamic, num_graphs):
    words = (*TOKENS, "data.seq_lens=[6,10,14,32]", "data.num_batches=8", "compile.backend=eager")
    row = run(compose(*words, f"compile.dynamic={dynamic}", "trainer.max_epochs=1"))
    assert (row.num_graphs, row.num_recompiles) == (num_graphs, num_graphs - 1)
    assert (row.num_compiled_steps, row.num_eager_steps) == (8, 0)


@pytest.mark.parametrize("marks", [[(0, 2, 64)], [(0, 2, None)]])
def test_a_marked_dimension_is_dynamic_from_the_start(compose, marks):
    dims = ",".join(
        f"{{input: {name}, dim: {dim}, min: {low}, max: {high or 'null'}}}"
        for (dim, low, high), name in itertools.product(marks, ("inputs", "targets"))
    )
    words = (*IMAGES, "data.batch_sizes=[6,10,14,32]", "data.num_batches=8", "compile.backend=eager")
    row = run(compose(*words, f"compile.mark_dynamic=[{dims}]", "trainer.max_epochs=1"))
    assert (row.status, row.num_graphs, row.num_recompiles) == ("ok", 1, 0)
    assert [dim["input"] for dim in row.compile_mark_dynamic] == ["inputs", "targets"]


def test_a_batch_out_of_the_bounds_has_a_variant_of_its_own(compose):
    dims = "{dim: 0, max: 16},{input: targets, dim: 0, max: 16}"
    words = (*IMAGES, "data.batch_sizes=[6,10,20]", "data.num_batches=6", "compile.backend=eager")
    row = run(compose(*words, f"compile.mark_dynamic=[{dims}]", "trainer.max_epochs=1"))
    assert (row.status, row.num_graphs, row.recompile_shapes) == ("ok", 2, [[[20, 3, 4, 4], [20]]])


@pytest.mark.parametrize(
    ("marks", "words", "problem"),
    [
        ("{dim: 1}", [], "inputs 1: the network fixes it to 3; remove the mark, "),
        ("{dim: 1, max: 8}", ["compile.scope=net"], "inputs 1: the network fixes it to 3; remove the mark, "),
        ("{dim: 0}", [], "inputs 0: the network fixes it to 64, which targets have too; mark both with the same "),
        ("{input: targets}", [], "targets 0: the network fixes it to 64, which inputs have too; mark both "),
        (
            "{dim: 0, max: 99},{input: targets, max: 80}",
            [],
            "inputs 0: the network takes it only where 2 <= size and size <= 80; remove its min and max, ",
        ),
    ],
    ids=["channels", "channels of the network alone", "inputs without targets", "targets without inputs", "bounds"],
)
def test_a_mark_that_the_network_fixes_is_one_line_and_a_compile_error_in_the_row(
    compose, tmp_path, marks, words, problem
):
    with pytest.raises(ConfigError) as caught:
        run(compose(*IMAGES, f"compile.mark_dynamic=[{marks}]", *words, *STATIC[:1], *STATIC[2:]))
    (line,) = caught.value.complaints
    assert line.startswith(f"compile.mark_dynamic, {problem}")
    row = read_row(tmp_path / "run")
    assert (row.status, row.error) == ("compile_error", line)


def test_a_fixed_mark_goes_on_uncompiled_where_it_is_asked_to(compose):
    words = (*IMAGES, *STATIC[:1], *STATIC[2:], "compile.on_error=eager", "data.num_batches=4")
    row = run(compose(*words, "compile.mark_dynamic=[{dim: 1}]"))
    assert (row.status, row.num_eager_steps, row.num_compiled_steps) == ("ok", 4, 0)
    assert "compile.mark_dynamic, inputs 1: the network fixes it to 3; " in row.effective_mode_reason


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["data.batch_sizes=[0,8]"], "data.batch_sizes = [0, 8]: expected a list of whole numbers of at least 1; "),
        (["data.batch_sizes=8"], "data.batch_sizes = 8: expected a list of whole numbers"),
        (["data.batch_sizes=[]"], "data.batch_sizes = []: expected a list of whole numbers"),
        (["data.batch_sizes=[8]", "data.order=random"], "data.batch_sizes = [8]: data.order=random draws between two"),
        (["data.order=random"], "data.order = random: there are no sizes to order; try data.batch_sizes=[8,16]"),
        (["data.order=list"], "data.order = list: there are no sizes to order; "),
        (["data.padding=fixed"], "data.padding = fixed: all are of one length; set data.seq_lens with it"),
        (["model=dynamic_mlp", "data.padding=buckets"], "data.padding = buckets: all are of one length; "),
        (["compile.on_recompile_limit=raise"], "compile.on_recompile_limit = raise: holds for compile.max_recomp"),
        (["data.order=shuffled"], "data.order = shuffled: expected one of list, cycle, random"),
        (["data.seq_lens=[8]"], "data.seq_lens = [8]: images have no length; use data.batch_sizes"),
        (["model=dynamic_mlp", "data.seq_lens=[200]"], "data.seq_lens = [200]: expected a list of whole numbers of "),
        (["model=dynamic_mlp", "data.padding=some"], "data.padding = some: expected one of longest, buckets, fixed"),
        (["compile.max_recompiles=-1"], "compile.max_recompiles = -1: expected a whole number of at least 0; "),
        (["compile.max_recompiles=many"], "compile.max_recompiles = many: expected a whole number"),
        (["compile.on_recompile_limit=stop"], "compile.on_recompile_limit = stop: expected one of raise, eager"),
        (["compile.mark_dynamic=[{dim: 7}]"], "compile.mark_dynamic, inputs 7: the shape is [2, 3, 32, 32], "),
        (["compile.mark_dynamic=[{dim: 0}]", "compile.scope=blocks"], "compile.mark_dynamic: opens dimensions of the "),
        (["compile.mark_dynamic=[{dim: 0, min: 1}]"], "compile.mark_dynamic, inputs 0: min = 1: "),
        (["compile.mark_dynamic=[{dim: 0, min: 8, max: 4}]"], "compile.mark_dynamic, inputs 0: max = 4: expected "),
        (["compile.mark_dynamic=[{input: loss}]"], "compile.mark_dynamic = [{input: loss}]: expected one of inputs, "),
        (["compile.mark_dynamic=[0]"], "compile.mark_dynamic = [0]: expected entries as in compile.mark_dynamic=[{in"),
        (["compile.mark_dynamic={dim:0}"], "compile.mark_dynamic = {dim:0}: expected entries as in compile.mark_dyna"),
        (
            ["data.batch_size=4", "compile.mark_dynamic=[{dim: 0, max: 3}]"],
            "compile.mark_dynamic, inputs 0: the data has size 4 here, outside 2..3; change min and max, or remove",
        ),
        (
            ["model=dynamic_mlp", "data.seq_lens=[5,9]", "compile.mark_dynamic=[{dim: 1, min: 99, max: 120}]"],
            "compile.mark_dynamic, inputs 1: the data has sizes 5 to 128 here, outside 99..120; ",
        ),
        (
            ["data.batch_sizes=[4,8,16]", "data.order=list", "data.num_batches=2"],
            "data.batch_sizes = [4, 8, 16]: 3 sizes for data.num_batches = 2, some would never come; ",
        ),
        (
            ["data.batch_sizes=[4,8,16]", "data.order=list", "trainer.limit_train_batches=20"],
            "data.batch_sizes = [4, 8, 16]: of the 50 batches of an epoch 20 are taken, none of them of 16 (data.",
        ),
        (
            ["model=dynamic_mlp", "data.seq_lens=[5,9]", "trainer.max_steps=1"],
            "data.seq_lens = [5, 9]: of the 50 batches of an epoch 1 are taken, none of them of 9 (data.order=cycle); ",
        ),
        (["compile.mark_dynamic=[{},{max: 5}]"], "compile.mark_dynamic, inputs 0: is marked 2 times; leave one "),
        (["compile.dynamic=maybe"], "compile.dynamic = maybe: expected true, false or null"),
        (["compile.fullgraph=maybe"], "compile.fullgraph = maybe: expected true or false"),
        (["compile.fullgraph=null"], "compile.fullgraph = null: expected a value; null is not one of its values"),
        (["compile.parts=[{dynamic: a}]"], "compile.parts = [{dynamic: a}]: expected true, false or null"),
        (["compile.mark_dynamic=[{}]", "compile.dynamic=false"], "compile.dynamic = False: excludes compile.mark"),
    ],
)  # fmt: skip
def test_a_shape_typed_wrongly_is_one_line(complaints_about, words, line):
    (complaint,) = complaints_about("data=synthetic", *words, "trainer.accelerator=cpu")
    assert complaint.startswith(line)


@pytest.mark.parametrize(
    "typed", ["data.batch_sizes=[0]", "compile.max_recompiles=-1", "compile.mark_dynamic=[{dim: 9}]"]
)
def test_it_ends_with_status_2(train, tmp_path, typed):
    done = train("data=synthetic", typed, "logger=none")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert not list(tmp_path.rglob("row.json"))


def test_what_compiling_shows_of_a_mark_ends_with_status_2_too(train):
    done = train(*IMAGES, "compile.backend=eager", "compile.mark_dynamic=[{dim: 1}]", "logger=none")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith("compile.mark_dynamic, inputs 1: the network fixes it to 3; ")


def test_two_ranks_get_batches_of_one_size_and_count_the_samples_of_both(train, tmp_path):
    words = (*IMAGES, "data.batch_sizes=[2,9]", "data.order=random", "data.num_batches=8", *STATIC)
    done = train(*words, "compile.max_recompiles=3", "logger=none", "hydra.run.dir=run", ranks=2)
    assert done.returncode == 0, done.stderr
    (record,) = read_epochs(tmp_path / "run")
    assert record.num_samples == 2 * sum(SizeSchedule("batch_size", [2, 9], "random", 0).epoch_sizes(0, 8))
    row = read_row(tmp_path / "run")
    assert (row.status, row.num_recompiles, row.num_graphs) == ("ok", 3, 4)


def test_old_rows_without_shapes_are_read_and_said(compose, tmp_path, capsys):
    row = run(compose(*IMAGES, "data.batch_sizes=[2,3]", "data.num_batches=4", *STATIC))
    summary.print_run(dataclasses.replace(row, recompile_shapes=None, recompile_times_s=None), tmp_path)
    assert "size mismatch" in capsys.readouterr().out
