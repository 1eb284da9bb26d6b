"""Settings that only some networks of a sweep have."""

import pytest
from hydra import compose, initialize_config_dir

from tests.conftest import CONF
from trainkit.results.runs import read_rows
from trainkit.sweep.model_settings import fit_to_networks

TINY = ("model.width=4", "data=synthetic", "data.num_batches=3", "data.num_val_batches=1", "trainer.max_epochs=1")


@pytest.fixture(scope="module")
def fit():
    def load(overrides):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("config", overrides, return_hydra_config=True)

    return lambda *jobs: fit_to_networks([job.split() for job in jobs], load)


def test_a_setting_goes_to_the_networks_that_have_it_and_a_job_is_run_once(fit):
    fitted = fit(
        "model=op_chain ++model.num_ops=2 seed=0",
        "model=op_chain ++model.num_ops=4 seed=0",
        "model=simple_cnn ++model.num_ops=2 seed=0",
        "model=simple_cnn ++model.num_ops=4 seed=0",
    )
    assert fitted.overrides == [
        ["model=op_chain", "++model.num_ops=2", "seed=0"],
        ["model=op_chain", "++model.num_ops=4", "seed=0"],
        ["model=simple_cnn", "seed=0"],
    ]
    assert fitted.notes == ["model.num_ops: no setting of simple_cnn, which is run without it"]


def test_a_setting_that_no_network_has_is_added_to_all_as_in_hydra(fit):
    jobs = ("model=op_chain ++model.extra=2", "model=simple_cnn ++model.extra=2")
    fitted = fit(*jobs)
    assert ([" ".join(overrides) for overrides in fitted.overrides], fitted.notes) == (list(jobs), [])


def test_a_sweep_over_networks_says_which_of_them_runs_without_a_setting(train, tmp_path):
    words = ("compile.mode=eager", "logger=none", "sweep=s", *TINY)
    done = train("-m", "model=op_chain,simple_cnn", "++model.num_ops=2", *words)
    rows = read_rows(tmp_path / "runs" / "sweeps" / "s")
    assert done.stdout.startswith("model.num_ops: no setting of simple_cnn, which is run without it\n"), done.stderr
    forced = [[override for override in row.overrides if override.startswith("++")] for row in rows]
    assert forced == [["++model.num_ops=2"], []]
    assert [(row.model, row.error) for row in rows] == [("op_chain", None), ("simple_cnn", None)]
